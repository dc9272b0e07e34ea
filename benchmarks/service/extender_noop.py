"""An extender that gives all nodes the same score, in a process of its own: what an extender costs by being there.

`python -m benchmarks.service.extender_noop`: prints its port. HTTP server and decoder are those of the service.
"""

from __future__ import annotations

import asyncio

import msgspec
import uvloop
from aiohttp import web

from steersman.live.service.messages import HostPriority


class Args(msgspec.Struct, rename="pascal"):
    """What it reads of kube-scheduler's question."""

    node_names: list[str]


async def main() -> None:
    """Serve until killed."""
    decode = msgspec.json.Decoder(Args).decode

    async def prioritize(request: web.Request) -> web.Response:
        names = decode(await request.read()).node_names
        same = [HostPriority(name, 5) for name in names]
        return web.Response(body=msgspec.json.encode(same), content_type="application/json")

    app = web.Application(client_max_size=1 << 25)
    app.router.add_post("/prioritize", prioritize)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
