package config_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// TestModes: the mode and its requirements, by file and by flag.
func TestModes(t *testing.T) {
	type asked struct {
		mode      config.Mode
		onMissing config.OnMissing
	}
	ordinary := asked{config.ModeIPVS, config.OnMissingIPTables}
	for _, tt := range []struct {
		name, file string
		args       []string
		want       asked
	}{
		{"nothing said", "", nil, ordinary},
		{"empty in the file", proxyHead + "mode: ''\n---\n" + ownHead + "onMissingIPVS: ''\n", nil, ordinary},
		{"empty given", "", []string{"--proxy-mode="}, ordinary},
		{"iptables", proxyHead + "mode: iptables\n", nil, asked{config.ModeIPTables, config.OnMissingIPTables}},
		{"iptables given", "", []string{"--proxy-mode=iptables"}, asked{config.ModeIPTables, config.OnMissingIPTables}},
		{"what the kernel has", proxyHead + "mode: auto\n", nil, asked{config.ModeAuto, config.OnMissingIPTables}},
		{"flag over file", proxyHead + "mode: iptables\n", []string{"--proxy-mode=auto"}, asked{config.ModeAuto, config.OnMissingIPTables}},
		{"flag over a mode that is not here", proxyHead + "mode: nftables\n", []string{"--proxy-mode=ipvs"}, ordinary},
		{"no way out", ownHead + "onMissingIPVS: fail\n", nil, asked{config.ModeIPVS, config.OnMissingFail}},
		{"no way out given", "", []string{"--on_missing_ipvs=fail"}, asked{config.ModeIPVS, config.OnMissingFail}},
		{"way out over the file", ownHead + "onMissingIPVS: fail\n", []string{"--on-missing-ipvs=iptables"}, ordinary},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := loaded(t, tt.file, tt.args...).Config
			if got := (asked{c.Mode, c.OnMissing}); got != tt.want {
				t.Errorf("asks for %v, want %v", got, tt.want)
			}
		})
	}
}

// TestLocalhostNodePorts checks that they are off unless a flag or the file turns them on,
// because they open loopback addresses to the network.
func TestLocalhostNodePorts(t *testing.T) {
	const on, off, empty = "iptables: {localhostNodePorts: true}\n", "iptables: {localhostNodePorts: false}\n", "iptables: {localhostNodePorts: null}\n"
	const flag = "--iptables-localhost-nodeports"
	for _, tt := range []struct {
		name, file string
		args       []string
		want       bool
	}{
		{"nothing said", "", nil, false},
		{"nothing said in iptables mode", proxyHead + "mode: iptables\n", nil, false},
		{"empty, as kubeadm has it", proxyHead + empty, nil, false},
		{"file", proxyHead + on, nil, true},
		{"file says no", proxyHead + off, nil, false},
		{"flag", "", []string{flag}, true},
		{"flag over file", proxyHead + on, []string{flag + "=false"}, false},
		{"flag over a file that says no", proxyHead + off, []string{flag + "=true"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := loaded(t, tt.file, tt.args...).Config.LocalhostNodePorts; got != tt.want {
				t.Errorf("on: %t, want %t", got, tt.want)
			}
		})
	}
}

// TestPeriods checks that each mode has its own periods, and that the defaults are the same.
func TestPeriods(t *testing.T) {
	type periods struct{ sync, least time.Duration }
	ordinary := periods{30 * time.Second, 0}
	for _, tt := range []struct {
		name, file     string
		args           []string
		ipvs, iptables periods
	}{
		{"nothing said", "", nil, ordinary, ordinary},
		{"zeros of kubeadm", proxyHead + "iptables: {syncPeriod: 0s, minSyncPeriod: 0s}\nipvs: {syncPeriod: 0s, minSyncPeriod: 0s}\n", nil, ordinary, ordinary},
		{"file", proxyHead + "iptables: {syncPeriod: 1m, minSyncPeriod: 1s}\nipvs: {syncPeriod: 2m, minSyncPeriod: 2s}\n", nil,
			periods{2 * time.Minute, 2 * time.Second}, periods{time.Minute, time.Second}},
		{"flags", "", []string{"--iptables-sync-period=1m", "--iptables-min-sync-period=1s"}, ordinary, periods{time.Minute, time.Second}},
		{"flag over file", proxyHead + "iptables: {syncPeriod: 1m, minSyncPeriod: 1s}\n", []string{"--iptables-min-sync-period=0s", "--ipvs-sync-period=3m"},
			periods{3 * time.Minute, 0}, periods{time.Minute, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := loaded(t, tt.file, tt.args...).Config
			for mode, want := range map[config.Mode]periods{config.ModeIPVS: tt.ipvs, config.ModeAuto: tt.ipvs, config.ModeIPTables: tt.iptables} {
				if sync, least := c.Periods(mode); (periods{sync, least}) != want {
					t.Errorf("%s: %s and %s, want %s and %s", mode, sync, least, want.sync, want.least)
				}
			}
		})
	}
}

// TestIdleBinding: settings of addresses that have no effect are named.
func TestIdleBinding(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want []string
	}{
		{"nothing said", nil, nil},
		{"route", []string{"--vip-binding=route", "--service-cidrs=10.96.0.0/16"}, nil},
		{"external addresses in iptables mode", []string{"--proxy-mode=iptables", "--external-binding=bind"}, []string{"--external-binding=bind: without effect with --proxy-mode=iptables"}},
		{"ranges alone", []string{"--service-cidrs=10.96.0.0/16"}, []string{"--service-cidrs: without effect with --vip-binding=address"}},
		{"iptables mode", []string{"--proxy-mode=iptables", "--vip-binding=route", "--service-cidrs=10.96.0.0/16"}, []string{"--vip-binding=route: without effect with --proxy-mode=iptables"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, loaded(t, "", tt.args...).Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
