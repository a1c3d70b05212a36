package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/vm"
)

func TestStatusIsTheCommands(t *testing.T) {
	tests := []struct {
		name, wantErr string
		args          []string
		want          int
	}{
		{name: "success", args: []string{"--", "true"}},
		{name: "failure", args: []string{"sh", "-c", "exit 3"}, want: 3},
		{name: "it gets an address inside of a guest", args: []string{"sh", "-c", `case $KUBE_IPVS_CLUSTERS in http://10.0.2.2:*/*) exit 4; esac`}, want: 4},
		{name: "no such command", args: []string{"/no/such/command"}, want: vm.StatusBroken, wantErr: "no such file"},
		{name: "ended by a signal", args: []string{"sh", "-c", "kill -9 $$"}, want: vm.StatusBroken, wantErr: "killed"},
		{name: "nothing to run", args: []string{"--"}, want: vm.StatusBroken, wantErr: "usage"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, err := run(t.Context(), tt.args)
			if status != tt.want || (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("run = %d, %v, want %d, %q", status, err, tt.want, tt.wantErr)
			}
		})
	}
}

func TestSignalEndsTheCommand(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if status, err := run(ctx, []string{"sleep", "1000"}); status != vm.StatusBroken || err == nil {
		t.Errorf("run = %d, %v, want %d and a reason", status, err, vm.StatusBroken)
	}
}
