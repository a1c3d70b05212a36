package topology_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/topology"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestRelayPassesOnAndEnds(t *testing.T) {
	far, near := listen(t), listen(t)
	go func() {
		for {
			conn, err := far.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		topology.Relay(ctx, near, far.Addr().String())
		close(ended)
	}()
	conn, err := net.Dial("tcp", near.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for i := range 3 {
		fmt.Fprintf(conn, "line %d\n", i)
		if line, err := in.ReadString('\n'); err != nil || line != fmt.Sprintf("line %d\n", i) {
			t.Fatalf("the echo is %q, %v", line, err)
		}
	}
	cancel()
	<-ended
	if _, err := in.ReadString('\n'); err == nil {
		t.Error("the connection outlived the relay")
	}
}
