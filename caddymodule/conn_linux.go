package caddymodule

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// acknowledged is how many bytes the peer's TCP has acknowledged (RFC 4898,
// tcpEStatsAppHCThruOctetsAcked).
func acknowledged(c syscall.RawConn) (n int64, ok bool) {
	err := c.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n, ok = int64(info.Bytes_acked), true
		}
	})
	return n, ok && err == nil
}
