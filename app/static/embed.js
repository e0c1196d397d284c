// The page of one figure alone.

import { alone } from "#sd/alone.js";

await alone();
