package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hostAddr is the host as a guest sees it, whatever runs the guest.
const hostAddr = "10.0.2.2"

// umlNetwork is the other side of a guest of User-mode Linux: a namespace of the host with one link
// to it. A TCP connection of the guest to hostAddr is passed on to the host's loopback, as QEMU
// does by itself. There is no way to anywhere else.
type umlNetwork struct {
	listener net.Listener
	running  sync.WaitGroup
	stop     context.CancelFunc
}

// newUMLNetwork makes it, and leaves this thread, which has to be locked and to end with its goroutine, inside of it.
func newUMLNetwork() (_ *umlNetwork, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("make a network namespace for the guest (root can): %w", err)
	}
	if err := linkUML(); err != nil {
		return nil, err
	}
	n := &umlNetwork{}
	if n.listener, err = net.Listen("tcp4", "0.0.0.0:0"); err != nil {
		return nil, err
	}
	if err := redirect(n.listener.Addr().(*net.TCPAddr).Port); err != nil {
		return nil, errors.Join(err, n.listener.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.running.Go(func() { n.serve(ctx) })
	return n, nil
}

func (n *umlNetwork) close() {
	n.stop()
	_ = n.listener.Close()
	n.running.Wait()
}

func linkUML() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("look up lo: %w", err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "host"
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: umlLink}
	if err := errors.Join(netlink.LinkSetUp(lo), netlink.LinkAdd(pair)); err != nil {
		return fmt.Errorf("make a link to the guest: %w", err)
	}
	peer, err := netlink.LinkByName(umlLink)
	if err != nil {
		return fmt.Errorf("look up the link to the guest: %w", err)
	}
	address, err := netlink.ParseAddr(hostAddr + "/24")
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.AddrAdd(pair, address), netlink.LinkSetUp(pair), netlink.LinkSetUp(peer)); err != nil {
		return fmt.Errorf("set up the link to the guest: %w", err)
	}
	return nil
}

// redirect makes every TCP connection that comes to this namespace arrive at one port.
func redirect(port int) error {
	rule := "-t nat -A PREROUTING -p tcp -j REDIRECT --to-ports " + strconv.Itoa(port)
	path, ok := lookTool("iptables-nft")
	if !ok {
		return errors.New("this machine has no iptables-nft: run e2e/install.sh vm")
	}
	if out, err := exec.Command(path, strings.Fields(rule)...).CombinedOutput(); err != nil {
		return fmt.Errorf("redirect what the guest asks of its host: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (n *umlNetwork) serve(ctx context.Context) {
	for {
		conn, err := n.listener.Accept()
		if err != nil {
			return
		}
		n.running.Go(func() { passOn(ctx, conn.(*net.TCPConn)) })
	}
}

// passOn joins a connection of the guest with one to the port of the host that it asked for. When one side ends, the other is told.
func passOn(ctx context.Context, guest *net.TCPConn) {
	defer guest.Close()
	port, err := wantedPort(guest)
	if err != nil {
		return
	}
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return
	}
	host := far.(*net.TCPConn)
	defer host.Close()
	defer context.AfterFunc(ctx, func() { _, _ = guest.Close(), host.Close() })()
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{guest, host}, {host, guest}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0]) // however one way ends, the other side hears of an end
			_ = way[1].CloseWrite()
		})
	}
	both.Wait()
}

// wantedPort is where a connection wanted to go before it was redirected (SO_ORIGINAL_DST, linux/netfilter_ipv4.h).
func wantedPort(conn *net.TCPConn) (port int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	const originalDst = 80
	failed := raw.Control(func(fd uintptr) {
		var mreq *unix.IPv6Mreq // as large as a sockaddr_in, whose port comes third and fourth
		if mreq, err = unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, originalDst); err == nil {
			port = int(mreq.Multiaddr[2])<<8 | int(mreq.Multiaddr[3])
		}
	})
	return port, errors.Join(failed, err)
}

// planUML starts the kernel inside of its network, which is this namespace where the options name a link, on one CPU of the host. Its threads and
// processes switch to each other at each system call of the guest, which takes ten times as long if
// another CPU has to be woken.
func (m *machine) planUML(o Options, kernel Kernel) error {
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	dir, release, err := ownDir(cache, "uml-") // if this process is killed, the next one sweeps it away
	if err != nil {
		return err
	}
	m.program, m.cmd = kernel.Image, exec.Command(kernel.Image, umlArgs(o, dir)...)
	var network *umlNetwork
	m.start = func() (err error) {
		if o.Link == "" {
			if network, err = newUMLNetwork(); err != nil {
				return err
			}
		}
		if err := pin(); err != nil {
			return err
		}
		return m.cmd.Start()
	}
	m.tidy = func() {
		if network != nil {
			network.close()
		}
		_ = os.RemoveAll(dir) // a later run deletes the rest
		release()
	}
	return nil
}

// pin keeps this thread, and what it starts, on the last CPU that it may use.
func pin() error {
	var may, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("ask for the CPUs of this process: %w", err)
	}
	for cpu := len(may)*64 - 1; cpu >= 0 && want.Count() == 0; cpu-- {
		if may.IsSet(cpu) {
			want.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &want); err != nil {
		return fmt.Errorf("keep the guest on one CPU: %w", err)
	}
	return nil
}
