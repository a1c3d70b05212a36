package vm

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// These tests run inside a guest: TestVMGuest carries this test binary in.

func needGuest(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBE_IPVS_WHERE") != string(InVM) {
		t.Skip("runs inside the VM, started by TestVMGuest")
	}
}

// sh runs commands of the guest's shell and fails the test with what they said.
func sh(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("bash", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, script)
	}
}

// TestGuestForwardsThroughIPVS sends each protocol over a virtual server to a backend behind a veth pair.
func TestGuestForwardsThroughIPVS(t *testing.T) {
	needGuest(t)
	sh(t, `
		ip netns add backend
		ip link add veth0 type veth peer name eth0 netns backend
		ip address add 10.1.0.1/24 dev veth0
		ip link set veth0 up
		ip netns exec backend ip link set lo up
		ip netns exec backend ip address add 10.1.0.2/24 dev eth0
		ip netns exec backend ip link set eth0 up
		ip link add vip0 type dummy
		ip address add 10.96.0.10/32 dev vip0
		echo 1 >/proc/sys/net/ipv4/vs/conntrack
		iptables -t nat -A POSTROUTING -o veth0 -j MASQUERADE
		modprobe -a sctp`)
	for protocol, option := range map[string]string{"tcp": "-t", "udp": "-u", "sctp": "--sctp-service"} {
		t.Run(protocol, func(t *testing.T) {
			sh(t, fmt.Sprintf("ipvsadm -A %[1]s 10.96.0.10:80 -s rr && ipvsadm -a %[1]s 10.96.0.10:80 -r 10.1.0.2:8080 -m", option))
			serveHello(t, protocol)
			if got := ask(t, protocol); got != "hello" {
				t.Errorf("the virtual server answered %q, want hello", got)
			}
		})
	}
}

// socket opens one of the three kinds, with deadlines, so that a lost packet fails the test instead of hanging it.
func socket(t *testing.T, protocol string) int {
	t.Helper()
	kind, number := unix.SOCK_STREAM, 0
	switch protocol {
	case "udp":
		kind = unix.SOCK_DGRAM
	case "sctp":
		number = unix.IPPROTO_SCTP
	}
	fd, err := unix.Socket(unix.AF_INET, kind, number)
	if err != nil {
		t.Fatalf("%s socket: %v", protocol, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	limit := unix.Timeval{Sec: 20}
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

// serveHello answers one client in the backend's namespace.
func serveHello(t *testing.T, protocol string) {
	t.Helper()
	fd := inNamespace(t, "backend", func() int { return socket(t, protocol) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 8080}); err != nil {
		t.Fatal(err)
	}
	if protocol == "udp" {
		go func() {
			_, from, err := unix.Recvfrom(fd, make([]byte, 16), 0)
			if err == nil {
				_ = unix.Sendto(fd, []byte("hello"), 0, from)
			}
		}()
		return
	}
	if err := unix.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	go func() {
		conn, _, err := unix.Accept(fd)
		if err == nil {
			_, _ = unix.Write(conn, []byte("hello"))
			unix.Close(conn)
		}
	}()
}

// ask connects to the virtual server and reads the answer.
func ask(t *testing.T, protocol string) string {
	t.Helper()
	fd := socket(t, protocol)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 80, Addr: [4]byte{10, 96, 0, 10}}); err != nil {
		t.Fatalf("connect: %v", err)
	}
	if protocol == "udp" {
		if _, err := unix.Write(fd, []byte("?")); err != nil {
			t.Fatal(err)
		}
	}
	answer := make([]byte, 16)
	n, err := unix.Read(fd, answer)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return string(answer[:n])
}

// inNamespace calls open on a thread in a named network namespace; a socket stays where it was made. The thread is not given
// back, so the runtime ends it.
func inNamespace(t *testing.T, name string, open func() int) int {
	t.Helper()
	result := make(chan int)
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		file, err := os.Open("/run/netns/" + name)
		if err == nil {
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
		}
		if err != nil {
			failed <- err
			return
		}
		result <- open()
	}()
	select {
	case fd := <-result:
		return fd
	case err := <-failed:
		t.Fatalf("enter namespace %s: %v", name, err)
		return -1
	}
}

// TestGuestCanUseNamespaces is the other way to run, on a kernel that can.
func TestGuestCanUseNamespaces(t *testing.T) {
	needGuest(t)
	if err := HostCanIPVS(t.Context()); err != nil {
		t.Fatalf("HostCanIPVS: %v", err)
	}
	var out strings.Builder
	o := Options{Command: []string{"bash", "-c", "ipvsadm -A -t 10.0.0.9:80 -s rr && ipvsadm -Sn; echo $KUBE_IPVS_WHERE; exit 7"}, Stdout: &out, Log: io.Discard}
	status, err := RunAnywhere(t.Context(), o)
	if status != 7 || err != nil || out.String() != "-A -t 10.0.0.9:80 -s rr\nnetns\n" {
		t.Errorf("status %d, %v, output %q", status, err, out.String())
	}
}

// TestGuestOrdinaryUser runs as an ordinary user: the IPVS of older kernels (6.1 is one) accepts only
// the root of the host, and the error has to say so.
func TestGuestOrdinaryUser(t *testing.T) {
	needGuest(t)
	if os.Getuid() == 0 {
		runAsNobody(t)
		return
	}
	where, reason := Locate(t.Context(), NeedIPVS)
	t.Logf("an ordinary user gets %s: %v", where, reason)
	if where == InVM && !strings.Contains(reason.Error(), "operation not permitted") {
		t.Errorf("Locate = %s, %v, want the missing permission named", where, reason)
	}
}

func runAsNobody(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestGuestOrdinaryUser$", "-test.v")
	cmd.SysProcAttr = dieWithRunner()
	cmd.SysProcAttr.Credential = ordinaryUser()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: TestGuestOrdinaryUser") {
		t.Errorf("as an ordinary user: %v", err)
	}
}

// TestGuestReachesTheHost finds the test's server on the host's loopback.
func TestGuestReachesTheHost(t *testing.T) {
	needGuest(t)
	conn, err := net.DialTimeout("tcp", "10.0.2.2:"+os.Getenv("HOST_PORT"), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "from the host" {
		t.Errorf("read %q, %v", got, err)
	}
}
