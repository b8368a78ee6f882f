"""A real mail server for the live tests, and a reader of mails that shares nothing with pointsman.

    mail_server.py serve FOLDER PORT starttls|tls USER PASSWORD
    mail_server.py parse < MAIL

`serve` takes mail over TLS, after a login. Each mail becomes two files in FOLDER/mails: N.eml as it came, and N.json
with its envelope and what Python's own e-mail package reads in it. FOLDER/keys holds the certificate. While FOLDER/hold
says "rcpt" or "end", the answer to RCPT TO, or to the end of the message (which is kept by then), does not come, and
FOLDER/holding is there.

`parse` prints what it reads in one mail.
"""

import asyncio
import email
import email.header
import email.policy
import email.utils
import json
import pathlib
import ssl
import sys


def read(raw):
    message = email.message_from_bytes(raw, policy=email.policy.default)
    bodies = {
        part.get_content_type(): part.get_content() for part in message.walk() if not part.is_multipart()
    }
    # After the bodies: reading one can find more of them.
    defects = [
        repr(defect)
        for part in message.walk()
        for defect in [*part.defects, *(one for value in part.values() for one in value.defects)]
    ]
    headers = {}
    for name, value in message.items():
        headers.setdefault(name, []).append(str(value))
    return {
        "headers": headers,
        "from": addresses(raw, "From"),
        "to": addresses(raw, "To"),
        "bodies": bodies,
        "defects": defects,
    }


def addresses(raw, name):
    # By the older policy: before Python 3.13.2 the newer one reads a space between two encoded words of a name (CPython
    # issue 128110).
    message = email.message_from_bytes(raw, policy=email.policy.compat32)
    found = email.utils.getaddresses(message.get_all(name))
    return [(str(email.header.make_header(email.header.decode_header(name))), address) for name, address in found]


class Keeper:
    """The handler of a server: it keeps what arrives."""

    def __init__(self, folder):
        self.folder = folder
        self.mails = folder / "mails"
        self.mails.mkdir(exist_ok=True)

    async def handle_RCPT(self, server, session, envelope, address, options):
        await self.hold("rcpt")
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 ok"

    async def handle_DATA(self, server, session, envelope):
        number = sum(1 for _ in self.mails.glob("*.json")) + 1
        mail = {
            "sender": envelope.mail_from,
            "recipients": envelope.rcpt_tos,
            "user": session.auth_data.login.decode(),
            "tls": server.transport.get_extra_info("ssl_object").version(),
            "message": read(envelope.content),
        }
        (self.mails / f"{number:04}.eml").write_bytes(envelope.content)
        unfinished = self.mails / f"{number:04}.unfinished"
        unfinished.write_text(json.dumps(mail))
        unfinished.rename(self.mails / f"{number:04}.json")
        await self.hold("end")
        return f"250 2.0.0 kept as {number}"

    async def hold(self, step):
        while self.is_held(step):
            (self.folder / "holding").touch()
            await asyncio.sleep(0.01)

    def is_held(self, step):
        try:
            return (self.folder / "hold").read_text() == step
        except FileNotFoundError:
            return False


async def serve(folder, port, security, user, password):
    # Imported here: `parse` needs nothing but Python.
    from aiosmtpd.smtp import SMTP, AuthResult

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "keys/mail.crt", folder / "keys/mail.key")
    keeper = Keeper(folder)

    def authenticate(server, session, envelope, mechanism, credentials):
        known = (credentials.login, credentials.password) == (user.encode(), password.encode())
        # Not handled: the server itself says no.
        return AuthResult(success=known, handled=False, auth_data=credentials)

    def connection():
        common = {"hostname": "mail.test", "authenticator": authenticate, "auth_required": True}
        if security == "tls":
            # aiosmtpd does not see that TLS was there before it.
            return SMTP(keeper, auth_require_tls=False, **common)
        return SMTP(keeper, tls_context=context, require_starttls=True, **common)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(connection, "127.0.0.1", port, ssl=context if security == "tls" else None)
    await server.serve_forever()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", folder, port, ("starttls" | "tls") as security, user, password]:
            asyncio.run(serve(pathlib.Path(folder), int(port), security, user, password))
        case ["parse"]:
            json.dump(read(sys.stdin.buffer.read()), sys.stdout)
        case _:
            sys.exit(__doc__)
