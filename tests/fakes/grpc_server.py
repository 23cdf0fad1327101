"""Serve gRPC methods on a unix socket from a table of functions: what the gRPC fakes share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import Protocol, cast

import grpc

StatusCode = grpc.StatusCode
"""Tests take it from here: ``tests.fakes`` sets grpc up before it is imported."""
Answer = Callable[[bytes], bytes]
Answers = Callable[[bytes, Callable[[], bool]], Iterator[bytes]]
"""``(request, is_active)`` → answers, until ``is_active`` says no."""


class Context(Protocol):
    """What the fakes use of a grpc.ServicerContext."""

    def is_active(self) -> bool: ...
    def abort(self, code: grpc.StatusCode, details: str) -> object: ...


class _Server(Protocol):
    def add_generic_rpc_handlers(self, handlers: tuple[object, ...]) -> None: ...
    def add_insecure_port(self, address: str) -> int: ...
    def start(self) -> None: ...
    def stop(self, grace: float | None) -> threading.Event: ...


class _Module(Protocol):
    """What the fakes use of grpc: its stubs leave the types of requests and answers open."""

    def server(self, thread_pool: futures.ThreadPoolExecutor) -> _Server: ...
    def method_handlers_generic_handler(
        self, service: str, method_handlers: dict[str, object]
    ) -> object: ...
    def unary_unary_rpc_method_handler(
        self, behavior: Callable[[bytes, Context], bytes]
    ) -> object: ...
    def unary_stream_rpc_method_handler(
        self, behavior: Callable[[bytes, Context], Iterator[bytes]]
    ) -> object: ...


_GRPC = cast("_Module", grpc)


class Faults:
    """Say what goes wrong, by method name (``ListContainers``); ``*`` means every method."""

    def __init__(self) -> None:
        self._errors: dict[str, grpc.StatusCode] = {}
        self._hanging: set[str] = set()
        self._garbage: set[str] = set()
        self._lock = threading.Lock()

    def hang(self, *methods: str) -> None:
        """Let these methods (none named: all) answer nothing."""
        with self._lock:
            self._hanging.update(methods or ("*",))

    def fail(self, code: grpc.StatusCode, *methods: str) -> None:
        """Let these methods (none named: all) answer with an error."""
        with self._lock:
            self._errors.update(dict.fromkeys(methods or ("*",), code))

    def garble(self, *methods: str) -> None:
        """Let these methods (none named: all) answer with bytes that are no message."""
        with self._lock:
            self._garbage.update(methods or ("*",))

    def clear(self) -> None:
        """Let everything work again; what hangs goes on."""
        with self._lock:
            self._errors.clear()
            self._hanging.clear()
            self._garbage.clear()

    def hangs(self, method: str, package: str = "") -> bool:
        """Tell whether this method hangs; ``<package>/<Method>`` may be named too."""
        with self._lock:
            return bool(self._hanging & {"*", method, f"{package}/{method}"})

    def error(self, method: str) -> grpc.StatusCode | None:
        """Return the error with which this method answers."""
        with self._lock:
            return self._errors.get(method, self._errors.get("*"))

    def garbles(self, method: str) -> bool:
        """Tell whether this method answers with bytes that are no message."""
        with self._lock:
            return bool(self._garbage & {"*", method})


class GrpcServer:
    """Serve on ``socket``. A method that no service has is UNIMPLEMENTED, as everywhere."""

    def __init__(self, socket: Path, faults: Faults) -> None:
        self.socket = socket
        self.faults = faults
        self.calls: list[str] = []
        self._server: _Server | None = None

    def start(
        self,
        services: Mapping[str, Mapping[str, Answer]],
        streams: Mapping[str, Mapping[str, Answers]] | None = None,
    ) -> None:
        """Start to serve; a socket that is left from before is replaced."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        server = _GRPC.server(futures.ThreadPoolExecutor(max_workers=8))
        for service, methods in services.items():
            handlers: dict[str, object] = {
                name: self._unary(service, name, answer) for name, answer in methods.items()
            }
            for name, answers in (streams or {}).get(service, {}).items():
                handlers[name] = self._streaming(service, name, answers)
            generic = _GRPC.method_handlers_generic_handler(service, handlers)
            server.add_generic_rpc_handlers((generic,))
        server.add_insecure_port(f"unix:{self.socket}")
        server.start()
        self._server = server

    def stop(self) -> None:
        """End all calls and remove the socket: from now on connections are refused."""
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
        self.socket.unlink(missing_ok=True)

    def _unary(self, service: str, name: str, answer: Answer) -> object:
        def serve(request: bytes, context: Context) -> bytes:
            self._suffer(service, name, context)
            return b"\xff\xff\xff" if self.faults.garbles(name) else answer(request)

        return _GRPC.unary_unary_rpc_method_handler(serve)

    def _streaming(self, service: str, name: str, answers: Answers) -> object:
        def serve(request: bytes, context: Context) -> Iterator[bytes]:
            self._suffer(service, name, context)
            yield from answers(request, context.is_active)

        return _GRPC.unary_stream_rpc_method_handler(serve)

    def _suffer(self, service: str, name: str, context: Context) -> None:
        package = service.rpartition(".")[0]
        self.calls.append(f"{package}/{name}")
        released = threading.Event()
        while self.faults.hangs(name, package) and context.is_active():
            released.wait(0.02)
        code = self.faults.error(name)
        if code is not None:
            context.abort(code, f"the fake fails {name}")
