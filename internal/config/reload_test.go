package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// TestCompare: of a changed file the agent takes some settings, and reports those that need a restart.
func TestCompare(t *testing.T) {
	for _, tt := range []struct {
		name, before, now string
		live, restart     []string
	}{
		{name: "nothing", before: proxyHead, now: proxyHead},
		{name: "other words, the same meaning", before: proxyHead + "ipvs: {scheduler: '', excludeCIDRs: [10.0.0.1/8], syncPeriod: 60s}\n",
			now: proxyHead + "ipvs: {scheduler: rr, excludeCIDRs: [\" 10.0.0.0/8\"], syncPeriod: 1m}\nclientConnection: {qps: 5}\nconfigSyncPeriod: 1m\n---\n" + ownHead},
		{name: "what the agent takes", before: proxyHead,
			now: proxyHead + "ipvs: {scheduler: wlc, excludeCIDRs: [10.0.0.0/8], strictARP: true, tcpTimeout: 1m, tcpFinTimeout: 1m, udpTimeout: 1m}\n" +
				"nodePortAddresses: [primary]\nlogging: {verbosity: 4}\nfeatureGates: {AllowServiceExternalIPs: false}\n---\n" +
				ownHead + "drain: 0s\nexternalIPAllowedCIDRs: [10.0.0.0/8]\nreadyzWatchBound: 1m\nhealthzWatchBound: 1h\napiServerProbePeriod: 0s\n",
			live: []string{"ipvs.scheduler", "ipvs.excludeCIDRs", "ipvs.strictARP", "ipvs.tcpTimeout", "ipvs.tcpFinTimeout", "ipvs.udpTimeout", "drain", "apiServerProbePeriod", "nodePortAddresses",
				"externalIPAllowedCIDRs", "featureGates", "logLevel", "readyzWatchBound", "healthzWatchBound"}},
		{name: "a profile instead of a time", before: proxyHead + "ipvs: {tcpTimeout: 1m, udpTimeout: 1m}\n", now: proxyHead + "ipvs: {udpTimeout: 1m}\n---\n" + ownHead + "ipvsTimeouts: recommended\n",
			live: []string{"ipvs.tcpTimeout", "ipvsTimeouts"}},
		{name: "what it does not", before: proxyHead,
			now:     proxyHead + "ipvs: {syncPeriod: 1m, minSyncPeriod: 1s}\nclusterCIDR: 10.0.0.0/8\nconntrack: {min: 1}\noomScoreAdj: 0\nhealthzBindAddress: 192.0.2.1\n---\n" + ownHead + "sourceDir: /m\n",
			restart: []string{"sourceDir", "ipvs.syncPeriod", "ipvs.minSyncPeriod", "clusterCIDR", "healthzBindAddress", "conntrack.min", "oomScoreAdj"}},
		{name: "the mode and what belongs to it", before: proxyHead,
			now:     proxyHead + "mode: iptables\niptables: {localhostNodePorts: true, syncPeriod: 1m, minSyncPeriod: 1s}\n---\n" + ownHead + "onMissingIPVS: fail\n",
			restart: []string{"mode", "onMissingIPVS", "iptables.syncPeriod", "iptables.minSyncPeriod", "iptables.localhostNodePorts"}},
		{name: "some of each", before: proxyHead + "ipvs: {scheduler: wlc}\n", now: proxyHead + "clusterCIDR: 10.0.0.0/8\n", live: []string{"ipvs.scheduler"}, restart: []string{"clusterCIDR"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, now := loaded(t, tt.before).Config, loaded(t, tt.now).Config
			live, restart := config.Compare(before, now)
			if diff := cmp.Diff([][]string{tt.live, tt.restart}, [][]string{live, restart}); diff != "" {
				t.Errorf("live and restart (-want +got):\n%s", diff)
			}

			kept := config.Live(before, now)
			if live, restart = config.Compare(before, kept); !cmp.Equal(live, tt.live) || restart != nil {
				t.Errorf("taken %v and %v, want %v", live, restart, tt.live)
			}
			if live, restart = config.Compare(kept, now); live != nil || !cmp.Equal(restart, tt.restart) {
				t.Errorf("left to do %v and %v, want a restart for %v", live, restart, tt.restart)
			}
		})
	}
}

// TestLiveLeavesBefore: the old config goes on meaning what it meant.
func TestLiveLeavesBefore(t *testing.T) {
	before, now := loaded(t, proxyHead).Config, loaded(t, proxyHead+"ipvs: {scheduler: wlc, excludeCIDRs: [10.0.0.0/8]}\n").Config
	old, err := before.Configz()
	if err != nil {
		t.Fatal(err)
	}
	config.Live(before, now)
	if same, err := before.Configz(); err != nil || string(same) != string(old) || before.Scheduler.Name() != "rr" {
		t.Errorf("error %v, configz (-before +after):\n%s", err, cmp.Diff(string(old), string(same)))
	}
}

// TestLiveExcept: a setting that the node refused stays as it was, and is shown so.
func TestLiveExcept(t *testing.T) {
	before, now := loaded(t, proxyHead).Config, loaded(t, proxyHead+"ipvs: {scheduler: wlc, strictARP: true}\n").Config
	kept := config.Live(before, now, "ipvs.strictARP")
	if live, restart := config.Compare(before, kept); !cmp.Equal(live, []string{"ipvs.scheduler"}) || restart != nil {
		t.Errorf("taken %v and %v", live, restart)
	}
	if text, err := kept.Configz(); err != nil || !strings.Contains(string(text), `"strictARP":false`) {
		t.Errorf("error %v, shown:\n%s", err, text)
	}
}
