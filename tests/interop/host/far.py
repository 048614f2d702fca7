"""What the far agents do, in whichever version of the SDK; and what they write down about it."""

import asyncio
import pathlib


def note(folder, text):
    with open(pathlib.Path(folder) / "ledger", "a") as ledger:
        ledger.write(f"{text}\n")


class Talk:
    """One turn of a task. `folder` holds the ledger of what was asked, and the file that lets slow work go on."""

    def __init__(self, folder, updater, part):
        self.folder, self.updater, self.part = pathlib.Path(folder), updater, part

    async def run(self, text, continued):
        note(self.folder, text)
        verb, _, rest = text.partition(" ")
        if continued:
            return await self.booked(text)
        await self.updater.start_work(self.said("on it"))
        if verb == "count":
            for n in range(1, int(rest) + 1):
                await self.piece(f"{n} ", n > 1)
                await asyncio.sleep(0.02)
            return await self.updater.complete(self.said("counted"))
        if verb == "march":
            for n in range(1, int(rest) + 1):
                await self.updater.start_work(self.said(f"step {n}"))
                await self.piece(f"{n} ", n > 1)
                while n == int(rest) // 2 and not (self.folder / "go").exists():
                    await asyncio.sleep(0.02)
                await asyncio.sleep(0.02)
            return await self.updater.complete(self.said("arrived"))
        if verb == "slow":
            await self.piece("half ", False)
            while not (self.folder / "go").exists():
                await asyncio.sleep(0.02)
            await self.piece("done", True)
            return await self.updater.complete()
        if verb == "book":
            await self.piece("a trip ", False)
            return await self.updater.requires_input(self.said("Which city?"))
        await self.updater.reject(self.said(f"nobody here can {text!r}"))

    async def booked(self, city):
        await self.updater.start_work()
        await self.piece(f"to {city}", True)
        await self.updater.complete(self.said("booked"))

    def said(self, text):
        return self.updater.new_agent_message([self.part(text)])

    async def piece(self, text, append):
        await self.updater.add_artifact([self.part(text)], artifact_id="text", append=append)
