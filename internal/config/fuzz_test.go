package config_test

import (
	"os"
	"strings"
	"testing"
)

// FuzzFile: no file ends the process, and one that is taken can be written and
// means the same again.
func FuzzFile(f *testing.F) {
	kubeadm, err := os.ReadFile("testdata/kubeadm.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(kubeadm))
	f.Add(proxyHead + "ipvs: {scheduler: wlc, excludeCIDRs: [10.0.0.0/8]}\n---\n" + ownHead + "healthzWatchBound: 0s\n")
	f.Add(proxyHead + "ipvs: {tcpTimeout: 1h, udpTimeout: 1m}\n---\n" + ownHead + "drain: 0s\nipvsTimeouts: recommended\n")
	f.Add(proxyHead + "mode: auto\niptables: {localhostNodePorts: true, syncPeriod: 1m, minSyncPeriod: 1s}\n---\n" + ownHead + "onMissingIPVS: fail\n")
	f.Add(`{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration","conntrack":{"min":null},"featureGates":{"AllAlpha":true}}`)
	for _, list := range [][]input{badFiles, badFields} {
		for _, in := range list {
			f.Add(in.file)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := loader(t, "--config", fileWith(t, text)).Load("node-a")
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("a mistake without a word")
			}
			return
		}
		first, err := l.Config.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again := loaded(t, string(first))
		second, err := again.Config.YAML()
		if err != nil || string(second) != string(first) {
			t.Errorf("error %v, written first\n%s\nand again\n%s", err, first, second)
		}
	})
}
