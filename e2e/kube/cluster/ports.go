package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
)

// Ports are chosen below those that the kernel gives to connections (from 32768) and below NodePorts: while the server is away,
// no client can sit on its port. A client that tries a loopback port of the kernel's range may even connect to itself.
const firstPort, portCount = 20000, 9000

// freePorts returns ports of an address without a listener. They are not reserved; a program that
// cannot bind fails with that error.
func freePorts(addr netip.Addr, count int) ([]int, error) {
	var ports []int
	var last error
	for range 200 {
		port := firstPort + rand.IntN(portCount)
		listener, err := net.Listen("tcp", netip.AddrPortFrom(addr, uint16(port)).String())
		if err != nil {
			last = err
			continue
		}
		defer listener.Close() // all stay taken until the end, so no port comes twice
		ports = append(ports, port)
		if len(ports) == count {
			return ports, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("find %d free ports of %s", count, addr), last)
}
