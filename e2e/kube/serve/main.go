// Command serve runs a command while this machine starts control planes for it, which is how a guest gets one at full speed:
//
//	go run ./e2e/kube/serve -- sh -c 'bin/vmrun -env KUBE_IPVS_CLUSTERS=$KUBE_IPVS_CLUSTERS -copy bin/kube.test:/run/kube.test -- /run/kube.test -test.v'
//
// The command finds the URL in its environment; it is good inside a guest of vmrun, where the host's loopback is 10.0.2.2. The
// exit status is the command's, 125 when serving failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
	"github.com/kube-ipvs/kube-ipvs/e2e/vm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	status, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
	}
	os.Exit(status)
}

func run(ctx context.Context, args []string) (status int, err error) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return vm.StatusBroken, errors.New("usage: serve -- command [args...]")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return vm.StatusBroken, err
	}
	host := cluster.NewHost(cluster.HostFromGuest, os.Stderr)
	server := &http.Server{Handler: host, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends with server.Close
	status, err = runCommand(ctx, args, fmt.Sprintf("http://%s:%d%s", cluster.HostFromGuest, listener.Addr().(*net.TCPAddr).Port, host.Path()))
	return status, errors.Join(err, server.Close(), host.Close())
}

// runCommand returns the command's own status. A signal to this program reaches the command as SIGTERM.
func runCommand(ctx context.Context, args []string, url string) (int, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), cluster.HostVariable+"="+url)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return vm.StatusBroken, err
	}
	return 0, nil
}
