package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports are taken below the kernel's ephemeral range (32768), so that no outgoing connection can take one between the moment
// it was found free and the moment a server binds it.
const (
	firstPort = 12000
	lastPort  = 32000
)

var given struct {
	sync.Mutex
	ports map[int]bool
}

// Port returns a TCP port on 127.0.0.1 that is free now and is given to nobody else in this process.
func Port(tb testing.TB) int {
	tb.Helper()
	given.Lock()
	defer given.Unlock()
	if given.ports == nil {
		given.ports = make(map[int]bool)
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if given.ports[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		given.ports[port] = true
		return port
	}
	tb.Fatal("no free port found")
	return 0
}

// Addr returns "127.0.0.1:port" with a free port.
func Addr(tb testing.TB) string {
	tb.Helper()
	return fmt.Sprintf("127.0.0.1:%d", Port(tb))
}
