package causeway_test

// tools is a Python module for programs in sandboxes. It uses plain sockets, because a library
// would correct hostile requests. Its times only bound hangs. SLOWNESS is the measured slowness of
// this machine; the tests define it before this text.
const tools = `
import os, socket, ssl, struct, sys, json, time, errno

GATEWAY = '10.199.0.1'

def word(e):
    if isinstance(e, socket.gaierror): return 'no-name'
    if isinstance(e, ssl.SSLError): return 'tls-error'
    if isinstance(e, ssl.CertificateError): return 'tls-error'
    if isinstance(e, (socket.timeout, TimeoutError)): return 'silent'
    if isinstance(e, OSError) and e.errno: return errno.errorcode.get(e.errno, str(e.errno))
    return type(e).__name__

def reach(host, port, seconds=300):
    """Open a connection and return how that ended."""
    try:
        socket.create_connection((host, port), seconds).close()
        return 'open'
    except Exception as e:
        return word(e)

def raw(s, data, seconds=300, idle=1):
    """Send bytes and return the answer up to its end or to a pause of idle seconds."""
    idle *= SLOWNESS
    out = b''
    try:
        s.settimeout(seconds)
        if data: s.sendall(data if isinstance(data, bytes) else data.encode('latin-1'))
        while True:
            part = s.recv(65536)
            if not part: break
            out += part
            s.settimeout(idle)
    except (socket.timeout, TimeoutError):
        pass
    except OSError as e:
        out += b'' if out else word(e).encode()
    return out.decode('latin-1')

def first(text):
    return text.split('\r\n')[0] if text else 'nothing'

def tls(host, port=443, sni=True, ca=None, verify=True, alpn=None, via=None, max12=False):
    """Connect and make a TLS handshake. Raise the error if one fails."""
    s = via or socket.create_connection((host, port), 300)
    s.settimeout(300)
    c = ssl.create_default_context(cafile=ca)
    if not verify or sni is False or sni is None:
        c.check_hostname = False
        c.verify_mode = ssl.CERT_NONE
    if alpn: c.set_alpn_protocols(alpn)
    if max12: c.maximum_version = ssl.TLSVersion.TLSv1_2
    name = host if sni is True else (sni or None)
    return c.wrap_socket(s, server_hostname=name)

def handshake(host, **k):
    try:
        tls(host, **k).close()
        return 'done'
    except Exception as e:
        return word(e)

def say(host, text, idle=1, **k):
    """Send a text over TLS and return the whole answer."""
    return raw(tls(host, **k), text, idle=idle)

def get(host, path='/', name=None, extra='', method='GET', body='', **k):
    if body: extra += 'Content-Length: %d\r\n' % len(body)
    # The server closes the connection at the end, so that a long pause is no end.
    return say(host, '%s %s HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n%s' % (method, path, name or host, extra, body), idle=60, **k)

def status(answer):
    p = answer.split(' ', 2)
    return p[1] if len(p) > 1 and p[0].startswith('HTTP/') else 'none:' + answer[:60]

def body(answer):
    return answer.split('\r\n\r\n', 1)[1] if '\r\n\r\n' in answer else ''

def rule(answer):
    """Return the rule that an answer names."""
    for part in answer.split():
        if part.startswith('rule='): return part[5:].strip('",')
    return ''

def connect(target, extra=''):
    """Send CONNECT to the gateway, and return the socket and the answer."""
    s = socket.create_connection((GATEWAY, 3128), 300)
    # Read no byte beyond the head: in an accepted tunnel the server is silent at first.
    head = b''
    try:
        s.sendall(('CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n' % (target, target, extra)).encode('latin-1'))
        while not head.endswith(b'\r\n\r\n'):
            byte = s.recv(1)
            if not byte: break
            head += byte
    except OSError as e: head = head or word(e).encode()
    answer = head.decode('latin-1')
    return s, answer if status(answer) == '200' else answer + raw(s, b'', seconds=SLOWNESS)

def query(name, kind, server=GATEWAY, tcp=False, seconds=300, edns=True):
    """Send a DNS query, and return the answer's code and number of records."""
    q = struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 1 if edns else 0)
    q += b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\0' + struct.pack('>HH', kind, 1)
    if edns: q += b'\0' + struct.pack('>HHIH', 41, 1232, 0, 0)
    try:
        if tcp:
            s = socket.create_connection((server, 53), seconds)
            s.sendall(struct.pack('>H', len(q)) + q)
            s.settimeout(seconds)
            f = s.makefile('rb')
            a = f.read(struct.unpack('>H', f.read(2))[0])
        else:
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.settimeout(seconds)
            s.sendto(q, (server, 53))
            a = s.recv(4096)
    except Exception as e:
        return word(e)
    f = struct.unpack('>HHHHHH', a[:12])
    return '%d/%d' % (f[1] & 15, f[3])

def udp(host, port, seconds=2):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(seconds)
    try:
        s.connect((host, port))
        s.send(b'x')
        s.recv(10)
        return 'answered'
    except Exception as e:
        return word(e)
`
