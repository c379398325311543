"""Pages of other sites: what they send to the server changes nothing, and a name that is made to
lead to this machine reads nothing.
"""

import http.server
import os
import shutil
import threading

import pytest
from conftest import PATIENCE_MS

BODY = '{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20, "ignore_eos": true}'
POSTS = {
    "/v1/chat/completions": BODY,
    "/v1/responses": '{"input": "hi", "max_output_tokens": 20}',
    "/models/unload": '{"model": "x"}',
    "/slots/0?action=erase": "{}",
}
# No request of this kind is asked about beforehand.
SEND = """async ([url, body]) => {
    const headers = {"content-type": "text/plain"};
    const answer = await fetch(url, {method: "POST", mode: "no-cors", headers, body});
    return answer.type;
}"""
READ = """async ([url, body]) => {
    const headers = {"content-type": "application/json"};
    const answer = await fetch(url, body === null ? {} : {method: "POST", headers, body});
    const error = (await answer.json()).error;
    return [answer.status, error.code];
}"""
OPEN = """url => new Promise(done => {
    const socket = new WebSocket(url);
    socket.onopen = () => done("open");
    socket.onerror = () => done("refused");
})"""


class Page(http.server.BaseHTTPRequestHandler):
    """The page of another site."""

    def do_GET(self):
        page = b"<!doctype html><title>another site</title>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site():
    """The address of another site, on this machine too."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="module")
def page(browser):
    """A page of a browser that lets pages reach this machine, and in which another name leads to
    this machine."""
    args = [
        "--no-sandbox",
        "--headless=new",
        "--disable-dev-shm-usage",
        "--host-resolver-rules=MAP rebound.example 127.0.0.1",
        "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",
    ]
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    other = browser.browser_type.launch(executable_path=path, args=args)
    page = other.new_page()
    page.set_default_timeout(PATIENCE_MS)
    yield page
    other.close()


def refused(server):
    return server.stats()["errors"]["http_4xx"]


def generated(server):
    return server.stats()["tokens"]["generated"]


def test_pages_of_other_sites_change_nothing(page, site, server):
    page.goto(site)
    before, tokens = refused(server), generated(server)
    for path, body in POSTS.items():
        assert page.evaluate(SEND, [server.address + path, body]) == "opaque"
    assert refused(server) == before + len(POSTS)
    address = server.address.replace("http", "ws") + "/v1/responses"
    assert page.evaluate(OPEN, address) == "refused"
    server.idle()
    assert generated(server) == tokens


def test_a_name_that_is_made_to_lead_here_reads_nothing(page, server):
    own = f"http://rebound.example:{server.port}"
    # What a browser has of the name before it leads here; a refusal has an origin too.
    page.goto(own + "/health")
    assert page.evaluate("location.origin") == own
    for path in ("/v1/models", "/v1/stats", "/slots", "/"):
        assert page.evaluate(READ, [path, None])[0] == 403
    assert page.evaluate(READ, ["/v1/chat/completions", BODY]) == [403, "host_not_allowed"]
    assert page.evaluate(OPEN, own.replace("http", "ws") + "/v1/responses") == "refused"


def test_names_and_pages_that_are_allowed_work(page, site, serve):
    origin = site.rstrip("/")
    server = serve("--allowed-host", "rebound.example", "--cors", origin)
    page.goto(f"http://rebound.example:{server.port}/")
    asked = f"""fetch("v1/chat/completions", {{method: "POST", body: {BODY!r}}}).then(it => it.status)"""
    assert page.evaluate(asked) == 200
    page.goto(site)
    tokens = generated(server)
    assert page.evaluate(SEND, [server.address + "/v1/chat/completions", BODY]) == "opaque"
    server.idle()
    assert generated(server) > tokens
