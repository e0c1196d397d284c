"""One OpenAI-compatible server, seen from outside: what it is, and a text of its as it arrives.

Works with any server that streams chat completions; of vLLM and llama.cpp it also reads what the
common protocol lacks: token ids, counts in mid-stream, how many guesses were made and kept. Only
the owner of a page names servers (docs/engines.md); a reader's words enter a request as a prompt
and nowhere else. Times are seconds on this machine's monotonic clock since the request went out.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential_jitter,
)

from kernels.errors import SdError
from kernels.settings import BOUNDS, BadSetting, Settings
from kernels.wire import Arrival, Counts, Ending, Malformed, entries, items, read, reason

# Every request on a line of its own would drown a server's log.
logging.getLogger("httpx2").setLevel(logging.WARNING)

#: Seconds without a byte from the server until it counts as silent, and until a connection stands.
SILENCE, CONNECT = 60.0, 10.0
ATTEMPTS = 5
#: Answers that another try may mend: too many requests, a gateway whose server is away, starting.
BUSY = frozenset({429, 502, 503, 504})
LONGEST_WAIT = 30.0
#: More tokens than were asked for, by this much, and the stream is cut off.
SPARE_TOKENS = 64
#: Seconds that a server gets to bring its counters up to date after a stream.
COUNTERS_PATIENCE = 2.0
VLLM, LLAMA, OTHER = "vLLM", "llama.cpp", "OpenAI-compatible"


class ServerError(SdError):
    """A server of the owner's did not do its part. `detail`: lane, and what the code needs.

    Codes: "server_unreachable" (lane, reason), "server_refused" (lane, status, reason),
    "server_silent" (lane, seconds), "server_broke" (lane, tokens, reason). The message reaches
    readers, so it holds no address; the log of the owner does.
    """


@dataclass(frozen=True)
class About:
    """What a server says of itself."""

    kind: str
    version: str
    model: str
    context: int | None

    @property
    def title(self) -> str:
        """Kind and version."""
        return f"{self.kind} {self.version}".strip()


@dataclass(frozen=True)
class Endpoint:
    """Where a lane's text comes from.

    lane: its name, for messages. url: with or without "/v1". model: its name there, empty for the
    first one listed. key: sent as a bearer token. extra: merged into every request, which is how
    one server is switched between plain and speculative decoding. probabilities: ask for each
    token's own, which vLLM answers with the tokens' texts as well.
    """

    lane: str
    url: str
    model: str = ""
    key: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    probabilities: bool = True
    silence: float = SILENCE
    attempts: int = ATTEMPTS
    first_wait: float = 0.5

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise SdError(
                "bad_server",
                f"{self.url!r} is not the address of a server: give http://HOST:PORT/v1, and a "
                "key in the environment rather than in the address.",
                lane=self.lane,
            )

    @property
    def root(self) -> str:
        """The address without "/v1"."""
        return self.url.rstrip("/").removesuffix("/v1")

    @property
    def local(self) -> bool:
        """Whether the server runs on this very machine."""
        host = urlsplit(self.url).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[httpx2.AsyncClient]:
        """A client for this server, closed at the end."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        timeout = httpx2.Timeout(self.silence, connect=CONNECT)
        async with httpx2.AsyncClient(headers=headers, timeout=timeout) as client:
            yield client

    # --- who is there ---------------------------------------------------------------------------

    async def identify(self, client: httpx2.AsyncClient) -> About:
        """Ask the server what it is. Raises ServerError when it does not answer after retries."""
        answer = await self._retried(lambda: self._get(client, "/v1/models"))
        models = [entry for entry in items(answer, "data") if isinstance(entry, dict)]
        names = [str(entry.get("id")) for entry in models]
        if self.model and names and self.model not in names:
            raise ServerError(
                "server_refused",
                f"The server of the {self.lane} lane has no model {self.model!r}; it has "
                f"{', '.join(names)}.",
                lane=self.lane,
                status=404,
                reason=f"no model {self.model}",
            )
        entry = models[names.index(self.model)] if self.model in names else (models or [{}])[0]
        model = self.model or str(entry.get("id") or "")
        context = entry.get("max_model_len")
        kind, version = OTHER, ""
        if entry.get("owned_by") == "vllm":
            kind = VLLM
            version = str((await self._optional(client, "/version")).get("version", ""))
        elif entry.get("owned_by") == "llamacpp":
            kind = LLAMA
            properties = await self._optional(client, "/props")
            version = str(properties.get("build_info", ""))
            context = entries(properties, "default_generation_settings").get("n_ctx")
        return About(kind, version, model, context if isinstance(context, int) else None)

    async def counters(self, client: httpx2.AsyncClient) -> dict[str, float]:
        """Totals of the server's Prometheus counters, by name; empty where it has none."""
        from prometheus_client.parser import text_string_to_metric_families

        try:
            answer = await client.get(f"{self.root}/metrics")
            families = (
                list(text_string_to_metric_families(answer.text)) if answer.is_success else []
            )
        except (httpx2.HTTPError, ValueError):
            return {}
        totals: dict[str, float] = {}
        for family in families:
            for sample in family.samples:
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
        return totals

    async def counts(
        self, client: httpx2.AsyncClient, before: Mapping[str, float], ending: Ending
    ) -> Counts | None:
        """How many guesses the stream that has just ended took: the server's own account.

        before: `counters` before the stream. None where the server tells nothing.
        """
        timings = ending.timings
        if "draft_n" in timings:
            return Counts(
                "llama.cpp timings", int(timings["draft_n"]), int(timings["draft_n_accepted"])
            )
        name = "vllm:spec_decode_num_draft_tokens_total"
        if name not in before:
            return None
        deadline = time.monotonic() + COUNTERS_PATIENCE
        while True:
            after = await self.counters(client)
            gone = {key: value - before.get(key, 0.0) for key, value in after.items()}
            requests = gone.get("vllm:request_success_total", 0.0)
            if requests >= 1 or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.05)
        return Counts(
            "vLLM counters",
            int(gone.get(name, 0.0)),
            int(gone.get("vllm:spec_decode_num_accepted_tokens_total", 0.0)),
            int(gone.get("vllm:spec_decode_num_drafts_total", 0.0)),
            requests == 1,
        )

    # --- a text ---------------------------------------------------------------------------------

    def body(self, settings: Settings, about: About) -> tuple[str, dict[str, Any]]:
        """Path and content of a request. Raises BadSetting for what this server cannot do."""
        if settings.length == 0:
            raise BadSetting("length", 0, f"a whole number from 1 to {BOUNDS['length'][1]:g}")
        body: dict[str, Any] = {
            "model": about.model,
            "max_tokens": settings.length,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": settings.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if settings.stop:
            body["stop"] = list(settings.stop)
        if about.kind == VLLM:
            body["stream_options"]["continuous_usage_stats"] = True
            body |= {"top_k": settings.top_k, "return_token_ids": True}
            body |= {"repetition_penalty": settings.repetition_penalty}
            body |= {"logprobs": True if settings.chat else 0} if self.probabilities else {}
        elif about.kind == LLAMA:
            body |= {"top_k": settings.top_k, "repeat_penalty": settings.repetition_penalty}
            body |= {"min_p": 0.0, "cache_prompt": False, "timings_per_token": True}
        elif settings.top_k or settings.repetition_penalty != 1:
            name = "top_k" if settings.top_k else "repetition_penalty"
            allowed = "its neutral value, since the server's protocol has no such setting"
            raise BadSetting(name, getattr(settings, name), allowed)
        if settings.chat:
            path, body["messages"] = (
                "/v1/chat/completions",
                [{"role": "user", "content": settings.prompt}],
            )
        else:
            path, body["prompt"] = "/v1/completions", settings.prompt
        return path, body | dict(self.extra)

    async def stream(
        self, client: httpx2.AsyncClient, settings: Settings, about: About, ending: Ending
    ) -> AsyncIterator[Arrival]:
        """Yield what arrives until the text is complete; `ending` then says how.

        Opening is retried; a stream that has begun is not, since a second one would be another
        text on another clock.

        Raises:
            ServerError: no answer, a refusal, silence, or a stream that broke off.
            BadSetting: the server cannot do what is asked.
        """
        path, body = self.body(settings, about)
        started = 0.0
        count = 0

        async def begin() -> httpx2.Response:
            nonlocal started
            request = client.build_request("POST", self.root + path, json=body)
            started = time.perf_counter()
            answer = await client.send(request, stream=True)
            if not answer.is_success:
                await answer.aread()
                await answer.aclose()
                answer.raise_for_status()
            return answer

        response = await self._retried(begin)
        try:
            async for event in httpx2.EventSource(response):
                if event.data.strip() == "[DONE]":
                    break
                arrival = read(event.data, time.perf_counter() - started, count, ending)
                count += len(arrival.words)
                if count > settings.length + SPARE_TOKENS:
                    raise Malformed("sent more than it was asked for")
                if arrival.words:
                    yield arrival
        except Malformed as fault:
            raise self._broke(count, str(fault)) from None
        except httpx2.TimeoutException:
            raise self._silent() from None
        except (httpx2.HTTPError, httpx2.SSEError) as fault:
            raise self._broke(count, type(fault).__name__) from fault
        finally:
            await response.aclose()
        if not ending.reason:
            raise self._broke(count, "the stream ended before the text did")

    # --- faults ---------------------------------------------------------------------------------

    async def _retried(self, call: Any) -> Any:
        """Call until it works, with longer and longer pauses; faults become ServerErrors."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type((httpx2.TransportError, _Busy)),
            wait=_polite(self.first_wait),
            stop=stop_after_attempt(self.attempts),
            before_sleep=self._tell,
            reraise=True,
        )

        async def once() -> Any:
            try:
                return await call()
            except httpx2.HTTPStatusError as fault:
                if fault.response.status_code in BUSY:
                    raise _Busy(fault.response) from None
                raise

        try:
            return await retrying(once)
        except _Busy as fault:
            raise self._refused(fault.response) from None
        except httpx2.HTTPStatusError as fault:
            raise self._refused(fault.response) from None
        except httpx2.ReadTimeout:
            raise self._silent() from None
        except httpx2.TransportError as fault:
            raise ServerError(
                "server_unreachable",
                f"The server of the {self.lane} lane does not answer ({type(fault).__name__}), "
                f"tried {self.attempts} times: is it running, and is its address right?",
                lane=self.lane,
                reason=type(fault).__name__,
            ) from fault

    def _tell(self, state: RetryCallState) -> None:
        fault = state.outcome.exception() if state.outcome else None
        wait = state.next_action.sleep if state.next_action else 0.0
        print(f"race: {self.lane}: {self.url}: {fault}; again in {wait:.1f} s", file=sys.stderr)

    def _refused(self, response: httpx2.Response) -> ServerError:
        why = reason(response.text)
        print(f"race: {self.lane}: {self.url}: {response.status_code} {why}", file=sys.stderr)
        return ServerError(
            "server_refused",
            f"The server of the {self.lane} lane refused the request "
            f"({response.status_code}): {why}",
            lane=self.lane,
            status=response.status_code,
            reason=why,
        )

    def _silent(self) -> ServerError:
        return ServerError(
            "server_silent",
            f"The server of the {self.lane} lane sent nothing for {self.silence:g} s.",
            lane=self.lane,
            seconds=self.silence,
        )

    def _broke(self, tokens: int, why: str) -> ServerError:
        return ServerError(
            "server_broke",
            f"The server of the {self.lane} lane broke off after {tokens} tokens ({why}): it "
            "may have been restarted. Start the race again.",
            lane=self.lane,
            tokens=tokens,
            reason=why,
        )

    async def _get(self, client: httpx2.AsyncClient, path: str) -> Any:
        answer = await client.get(self.root + path)
        answer.raise_for_status()
        try:
            return answer.json()
        except ValueError:
            raise ServerError(
                "server_refused",
                f"What answers for the {self.lane} lane is not an OpenAI-compatible server.",
                lane=self.lane,
                status=answer.status_code,
                reason="no JSON",
            ) from None

    async def _optional(self, client: httpx2.AsyncClient, path: str) -> dict[str, Any]:
        """What not every server has."""
        try:
            found = await self._get(client, path)
        except (httpx2.HTTPError, ServerError):
            return {}
        return found if isinstance(found, dict) else {}


class _Busy(Exception):
    """An answer that asks to come back later."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(f"answered {response.status_code}")
        self.response = response


def _polite(first: float) -> Any:
    """Wait as long as the server asks for (Retry-After), else longer each time, with jitter."""
    backoff = wait_exponential_jitter(multiplier=first, max=LONGEST_WAIT / 3, jitter=first)

    def wait(state: RetryCallState) -> float:
        fault = state.outcome.exception() if state.outcome else None
        asked = fault.response.headers.get("Retry-After", "") if isinstance(fault, _Busy) else ""
        return min(float(asked), LONGEST_WAIT) if asked.isdecimal() else backoff(state)

    return wait
