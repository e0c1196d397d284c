// Starts the figure of a self-contained page.

import { alone } from "#sd/alone.js";

await alone();
