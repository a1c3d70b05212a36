package vserver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
)

// Each call is told of once, with how long its caller waited, one that never came back too.
func TestCallsAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		type call struct {
			took time.Duration
			err  error
		}
		var told []call
		h := open(t, p, vserver.Options{Called: func(took time.Duration, err error) { told = append(told, call{took, err}) }})
		defer h.Close()
		told = nil // of finding the family
		if errs := h.WriteServers(ctx, servers(vserver.Add, 1)); errs != nil {
			t.Fatal(errs)
		}
		if len(told) != 1 || told[0] != (call{}) {
			t.Errorf("one row: told of %+v, want one call without an error", told)
		}
		server := servers(vserver.Add, 1)[0].Key
		if errs := h.WriteDestinations(ctx, []vserver.DestinationChange{{Op: vserver.Add, Key: vserver.DestinationKey{Server: server, Addr: server.Addr, Port: 8080}}}); errs != nil {
			t.Fatal(errs)
		}
		told = nil
		if _, err := h.ListDestinations(ctx, server); err != nil {
			t.Fatal(err)
		}
		if len(told) != 1 || told[0] != (call{}) {
			t.Errorf("a list and its end: told of %+v, want one call without an error", told)
		}
		told, p.mute = nil, func(int) bool { return true }
		if _, err := h.ListTraffic(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v", err)
		}
		if len(told) != 1 || told[0].took != 5*time.Second || !errors.Is(told[0].err, context.DeadlineExceeded) {
			t.Errorf("no answer: told of %+v, want one call of 5s that was given up", told)
		}
	})
}
