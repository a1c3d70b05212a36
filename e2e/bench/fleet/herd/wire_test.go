package herd

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	testpoll "github.com/kube-ipvs/kube-ipvs/internal/testkit/poll"
)

// echo answers each byte.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return listener.Addr().String()
}

func talk(t *testing.T, w *Wire, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, len(text))); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWire(t *testing.T) {
	w, _, err := newWire(echo(t), firstPort)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	first := talk(t, w, "hello")
	talk(t, w, "you")
	// Bytes are counted when they are on their way, and may have arrived by then.
	testpoll.Until(t, "8 bytes each way", func() bool {
		down, up := w.Bytes()
		if down > 8 || up > 8 {
			t.Fatalf("%d and %d bytes, want 8 each way", down, up)
		}
		return down == 8 && up == 8
	})
	if n := len(w.Accepted()); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}

	w.Cut()
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that was cut goes on")
	}
	w.Shut()
	if _, err := net.Dial("tcp", w.addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a wire that is down answers %v, want a refusal", err)
	}
	if err := w.Open(); err != nil {
		t.Fatal(err)
	}
	talk(t, w, "again")
	if n := len(w.Accepted()); n != 1 {
		t.Errorf("%d connections after it was opened, want 1", n)
	}
}
