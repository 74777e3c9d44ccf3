"""The process that has imported everything, and forks for each command: `server.py SOCKET`.

It begins to import when the first command comes, and ends when its standard input is closed. It has one thread, and
computes only what loads the kernels, so a fork finds torch nearly as it is right after its import.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import threading
import types
from dataclasses import dataclass, field
from pathlib import Path

LIBRARIES = (
    *("torch", "numba", "safetensors.numpy", "jinja2", "pandas", "plotly.offline", "peft"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg", "rich.console", "rich.progress", "rich.table"),
    *("transformers.models.auto.modeling_auto", "transformers.models.bert.modeling_bert"),
)
# A program, and what imports Flower, which starts threads.
LEFT_OUT = ("fedrel.__main__", "fedrel.federation.flower", "fedrel.deployment")


def main(where: str) -> None:
    """Serve until standard input ends."""
    with contextlib.suppress(FileNotFoundError):
        Path(where).unlink()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(where)
    listener.listen()
    print("ready", flush=True)
    Server(listener).serve()


@dataclass
class Server:
    """Who is connected, and which child works for whom."""

    listener: socket.socket
    children: dict[int, socket.socket] = field(default_factory=dict)  # by process number
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def serve(self) -> None:
        """Fork for each connection; tell a client how its child ended; end a child whose client is gone."""
        ended, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        with selectors.DefaultSelector() as self.events:
            for source in (self.listener, sys.stdin, ended):
                self.events.register(source, selectors.EVENT_READ)
            while True:
                for key, _ in self.events.select():
                    if key.fileobj is self.listener:
                        self.accept()
                    elif key.fileobj is sys.stdin:
                        return self.stop()
                    elif key.fileobj == ended:
                        os.read(ended, 4096)
                        self.report()
                    elif key.data in self.children:  # a client says nothing more, so it is gone
                        os.kill(key.data, signal.SIGKILL)
                        self.events.unregister(key.fileobj)

    def accept(self) -> None:
        """Read a request and fork."""
        client, _ = self.listener.accept()
        try:
            client.sendall(json.dumps(self.environment).encode() + b"\n")
            length, streams, _, _ = socket.recv_fds(client, 8, 3)
            if not length:  # the client does without us
                return client.close()
            with client.makefile("rb") as incoming:
                request = json.loads(incoming.read(int.from_bytes(length, "big")))
        except (ConnectionError, BrokenPipeError):
            return client.close()
        preload()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.listener.close()
            self.events.close()
            for other in (client, *self.children.values()):
                other.close()
            Child(request, streams).run()
        for stream in streams:
            os.close(stream)
        self.children[pid] = client
        self.events.register(client, selectors.EVENT_READ, pid)
        with contextlib.suppress(ConnectionError):
            client.sendall(json.dumps({"pid": pid}).encode() + b"\n")
        return None

    def report(self) -> None:
        """Tell clients whose children have ended."""
        for pid, client in list(self.children.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self.children[pid]
                with contextlib.suppress(KeyError):
                    self.events.unregister(client)
                with contextlib.suppress(ConnectionError):
                    client.sendall(json.dumps({"status": status}).encode() + b"\n")
                client.close()

    def stop(self) -> None:
        """End all children."""
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@dataclass
class Child:
    """The forked process: becomes the one that was asked for, and never returns."""

    request: dict[str, object]
    streams: list[int]

    def run(self) -> None:
        """Run the command as Python would have from its start to its end."""
        code = 1
        try:
            self.settle()
            code = self.outcome()
            threading._shutdown()  # waits for threads, as at the end of any program
            atexit._run_exitfuncs()
            code = self.flush(code)
        finally:
            os._exit(code)

    def settle(self) -> None:
        """The client's streams, environment, folder and signals."""
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
            os.close(stream)
        at_once = bool(os.environ.get("PYTHONUNBUFFERED"))  # of which server and client have the same
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            write = name != "stdin"
            stream = io.TextIOWrapper(
                io.open(number, "wb" if write else "rb", 0 if write and at_once else -1, closefd=False),  # noqa: SIM115, UP020
                encoding="utf-8",
                errors="backslashreplace" if name == "stderr" else "strict",
                line_buffering=not at_once and (name == "stderr" or os.isatty(number)),
                write_through=write and at_once,
            )
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        os.environ.clear()
        os.environ.update(self.request["environment"])
        sys.modules["fedrel.tensors.compiling"].has_numba.cache_clear()  # a variable may say otherwise here
        os.chdir(self.request["folder"])
        sys.executable = self.request["python"]  # so that processes that it starts are quick, too
        for number in self.request["ignored"]:
            signal.signal(number, signal.SIG_IGN)

    def outcome(self) -> int:
        """The exit code of the command."""
        try:
            self.command()
        except SystemExit as end:
            if end.code is None or isinstance(end.code, int):
                return end.code or 0
            print(end.code, file=sys.stderr)
            return 1
        except KeyboardInterrupt as error:
            show(error)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException as error:
            show(error)
            return 1
        return 0

    def command(self) -> None:
        """What `fedrel`, `pytest` or `python` with `-c`, `-m`, `-` or a file does; `-P` may come before these."""
        arguments = list(self.request["arguments"])
        path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        new = [folder for folder in path if folder and folder not in sys.path]
        sys.path[:0] = new
        if any((Path(folder) / "fedrel").is_dir() for folder in new):  # not the package that was imported
            for name in [name for name in sys.modules if name.partition(".")[0] == "fedrel"]:
                del sys.modules[name]
        if self.request["name"] == "fedrel":
            sys.argv = ["fedrel", *arguments]
            return importlib.import_module("fedrel.cli.main").main()
        if self.request["name"] == "pytest":
            sys.argv = ["pytest", *arguments]
            sys.exit(importlib.import_module("pytest").console_main())
        program = sys.modules["__main__"] = types.ModuleType("__main__")
        safe = arguments[0] == "-P"  # then the program's folder is not on the path
        match arguments[safe:]:
            case ["-m", module, *rest]:
                sys.path[:0] = [] if safe else [str(Path.cwd())]
                sys.argv = ["-m", *rest]
                sys.modules.pop(module, None)
                runpy._run_module_as_main(module)
            case ["-c", code, *rest]:
                sys.path[:0] = [] if safe else [""]
                sys.argv = ["-c", *rest]
                exec(compile(code, "<string>", "exec"), vars(program))
            case ["-", *rest]:
                sys.path[:0] = [] if safe else [""]
                sys.argv = ["-", *rest]
                exec(compile(sys.stdin.read(), "<stdin>", "exec"), vars(program))
            case [file, *rest]:
                sys.path[:0] = [] if safe else [str(Path(file).resolve().parent)]
                sys.argv = [file, *rest]
                runpy.run_path(file, run_name="__main__")
        return None

    def flush(self, code: int) -> int:
        """Write what is still in the streams; 120 if that fails, as Python has it."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                return 120
        return code


def show(error: BaseException) -> None:
    """Print the traceback, without the two lines that are ours."""
    trace = error.__traceback__
    for _ in range(2):
        trace = trace and trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def preload() -> None:
    """Import what commands import, once."""
    if "torch" in sys.modules:
        return
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):  # some are extras
            importlib.import_module(name)
    package = importlib.import_module("fedrel")
    for module in pkgutil.walk_packages(package.__path__, "fedrel."):
        if not module.name.startswith(LEFT_OUT):
            with contextlib.suppress(ImportError):  # kernels, without numba
                importlib.import_module(module.name)
    load_kernels()
    gc.freeze()  # a child that looked through all of it for garbage would copy it


def load_kernels() -> None:
    """Load the kernels that are compiled and on disk, which takes a second of each process that trains."""
    from fedrel.extractors.pcnn import all_kernels
    from fedrel.tensors.compiling import has_numba, kernel_folder

    if has_numba():
        marks = kernel_folder(all_kernels.FOLDER).glob("*/compiled")
        on_disk = {mark.parent.name.rpartition("-")[0] for mark in marks}
        # Not `gradients`: torch does not let a fork go backward through a graph if its parent has.
        for name in {"training", "scoring"} & on_disk:
            all_kernels.PARTS[name]()


if __name__ == "__main__":
    sys.path.pop(0)  # this folder; what follows is as every Python here has it
    main(sys.argv[1])
