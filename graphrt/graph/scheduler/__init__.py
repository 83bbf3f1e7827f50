"""The scheduler: it carries out what the core says, on asyncio and on trio."""
