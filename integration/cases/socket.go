package cases

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// freeAddress finds a loopback port outside the range from which the system
// takes ports for outgoing connections, so that nobody takes it in between. No
// other caller in this or another process gets it: two gateways on one port
// would share it without an error, because Caddy listens with SO_REUSEPORT.
func freeAddress() string {
	for range 200 {
		port := 18000 + mathrand.IntN(14000)
		if !claimPort(port) {
			continue
		}
		addr := "127.0.0.1:" + strconv.Itoa(port)
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	return "127.0.0.1:0"
}

// claims keeps the listeners of claimed ports open until the process ends; a
// case claims a handful.
var claims sync.Map

// claimPort claims a port among all runners of this machine: by a name in the
// abstract namespace, which the system frees with the process.
func claimPort(port int) bool {
	l, err := net.Listen("unix", "@gateway-case-port-"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	claims.Store(port, l)
	return true
}

func randomBytes(n int64) []byte {
	p := make([]byte, n)
	rand.Read(p)
	return p
}

// dialer connects to the gateway from a given source address. A reader slower
// than loopback gets a small receive buffer: otherwise the kernel reads for it.
func dialer(peer string, smallBuffer bool) *net.Dialer {
	d := &net.Dialer{Timeout: 10 * time.Second}
	if peer != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(peer)}
	}
	if smallBuffer {
		d.Control = func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 16<<10) // best effort: only makes slowness visible sooner
			})
		}
	}
	return d
}

// unsent is how many bytes the peer's kernel has not acknowledged.
func unsent(conn *net.TCPConn) int64 {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return int64(n)
}

// established is the kernel's number for an open TCP connection.
const established = 1

// far is the other side of a loopback connection as the kernel lists it.
type far struct {
	found  bool
	state  int
	unread int64 // bytes that arrived and were not read
}

// farSide looks the peer's socket up. It sees every socket of this network
// namespace, so it works for any local server process.
func farSide(conn *net.TCPConn) far {
	local, remote := conn.LocalAddr().(*net.TCPAddr).AddrPort(), conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		found := scanSockets(f, remote, local)
		f.Close()
		if found.found {
			return found
		}
	}
	return far{}
}

func scanSockets(r io.Reader, local, remote netip.AddrPort) far {
	lines := bufio.NewScanner(r)
	lines.Scan() // the heading
	wantLocal, wantRemote := fmt.Sprintf(":%04X", local.Port()), fmt.Sprintf(":%04X", remote.Port())
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 5 || !strings.HasSuffix(f[1], wantLocal) || !strings.HasSuffix(f[2], wantRemote) || f[2][:len(f[2])-5] != hexAddr(remote.Addr(), len(f[2])-5) {
			continue
		}
		state, _ := strconv.ParseInt(f[3], 16, 32)
		_, rx, _ := strings.Cut(f[4], ":")
		unread, _ := strconv.ParseInt(rx, 16, 64)
		return far{true, int(state), unread}
	}
	return far{}
}

// hexAddr writes an address as /proc/net does: 32-bit words in host order.
func hexAddr(a netip.Addr, digits int) string {
	var raw []byte
	if digits == 8 {
		v4 := a.Unmap().As4()
		raw = v4[:]
	} else {
		v6 := a.As16()
		raw = v6[:]
	}
	var b strings.Builder
	for i := 0; i+4 <= len(raw); i += 4 {
		fmt.Fprintf(&b, "%02X%02X%02X%02X", raw[i+3], raw[i+2], raw[i+1], raw[i])
	}
	return b.String()
}

// watchClosed returns when the peer has closed its side or ctx ends; it works
// although the client does not read, which hides a close behind unread data.
func watchClosed(ctx context.Context, conn *net.TCPConn) bool {
	for {
		if f := farSide(conn); !f.found || f.state != established {
			return true
		}
		if !pause(ctx, 50*time.Millisecond) {
			return false
		}
	}
}
