package vserver_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
)

// TestReopensInItsNamespace: after a time-out the socket is opened on whatever
// thread the caller then runs on, and still belongs to the first namespace.
func TestReopensInItsNamespace(t *testing.T) {
	h := openKernel(t, vserver.Options{})
	defer h.Close()
	if errs := h.WriteServers(ctx, servers(vserver.Add, 3)); errs != nil {
		t.Fatal(errs)
	}
	done := make(chan struct{})
	go func() { // another goroutine: another thread, in the machine's own namespace
		defer close(done)
		vserver.Drop(h)
		got, err := h.ListServers(ctx)
		if err != nil || len(got) != 3 {
			t.Errorf("%d servers, %v; want 3", len(got), err)
		}
		if _, err := h.Timeouts(ctx); err != nil {
			t.Error(err)
		}
	}()
	<-done
	if n := h.Counters().Reopened; n != 1 {
		t.Errorf("%d sockets given up, want 1", n)
	}
}

// TestToolReplaysOurText: the output of WriteSave makes the same table again.
func TestToolReplaysOurText(t *testing.T) {
	if _, err := exec.LookPath("ipvsadm"); err != nil {
		t.Skipf("skipped: %v", err)
	}
	h := openKernel(t, vserver.Options{})
	defer h.Close()
	rows := append(servers(vserver.Add, 3),
		vserver.ServerChange{Op: vserver.Add, Key: serverKey("[fd00::1]:53", vserver.ProtocolUDP), Server: vserver.Server{Scheduler: "mh", Flags: 0x1d, Timeout: 60, HostBits: 64}},
		vserver.ServerChange{Op: vserver.Add, Key: serverKey("10.97.0.1:53", vserver.ProtocolSCTP), Server: vserver.Server{Scheduler: "sh", Flags: 0x19, Timeout: 60, HostBits: 4}},
	)
	if errs := h.WriteServers(ctx, rows); errs != nil {
		t.Fatal(errs)
	}
	errs := h.WriteDestinations(ctx, []vserver.DestinationChange{
		{Op: vserver.Add, Key: destinationKey(rows[0].Key, "10.0.0.1:8080"), Destination: vserver.Destination{Weight: 3}},
		{Op: vserver.Add, Key: destinationKey(rows[3].Key, "[fd01::1]:53"), Destination: vserver.Destination{Weight: 0, Upper: 9, Lower: 4}},
		{Op: vserver.Add, Key: destinationKey(rows[4].Key, "10.0.0.2:53"), Destination: vserver.Destination{Weight: 9, Forward: vserver.ForwardTunnel}},
	})
	if errs != nil {
		t.Fatal(errs)
	}
	before := text(t, h)
	run(t, "", "-C")
	run(t, before, "-R")
	if diff := cmp.Diff(vservertest.SortSave(before), vservertest.SortSave(text(t, h))); diff != "" {
		t.Errorf("table after ipvsadm -R (-want +got):\n%s", diff)
	}
}

func run(t *testing.T, stdin string, arg string) {
	t.Helper()
	cmd := exec.Command("ipvsadm", arg)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ipvsadm %s: %v: %s", arg, err, out)
	}
}

func text(t *testing.T, h *vserver.Handle) string {
	t.Helper()
	servers, destinations, err := h.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := vserver.WriteSave(&b, servers, destinations); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
