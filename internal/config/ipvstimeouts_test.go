package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// TestIdleTimes: a time or the word, by the flag or in the two documents of the file,
// and the flag wins over the file.
func TestIdleTimes(t *testing.T) {
	recommended := config.Timeouts{Recommended: true}
	profile, hour := ownHead+"ipvsTimeouts: recommended\n", proxyHead+"ipvs: {tcpTimeout: 1h}\n"
	for _, tt := range []struct {
		name, file string
		args       []string
		want       config.Timeouts
		overrides  []string
	}{
		{name: "nothing said"},
		{name: "a time", args: []string{"--ipvs-tcp-timeout=2h"}, want: config.Timeouts{TCP: 2 * time.Hour}},
		{name: "the word", args: []string{"--ipvs-tcp-timeout=recommended"}, want: recommended},
		{name: "the word, then a time", args: []string{"--ipvs-tcp-timeout=recommended", "--ipvs-tcp-timeout=2h"}, want: config.Timeouts{TCP: 2 * time.Hour}},
		{name: "a time, then the word", args: []string{"--ipvs-tcp-timeout=2h", "--ipvs-tcp-timeout=recommended"}, want: recommended},
		{name: "in the file", file: profile, want: recommended},
		{name: "other times beside it", file: profile, args: []string{"--ipvs-udp-timeout=1m"}, want: config.Timeouts{Recommended: true, UDP: time.Minute}},
		{name: "the same by file and flag", file: profile, args: []string{"--ipvs-tcp-timeout=recommended"}, want: recommended},
		{name: "a time over the file's word", file: profile, args: []string{"--ipvs-tcp-timeout=2h"}, want: config.Timeouts{TCP: 2 * time.Hour}, overrides: []string{"--ipvs-tcp-timeout"}},
		{name: "the kernel's over the file's word", file: profile, args: []string{"--ipvs-tcp-timeout=0s"}, overrides: []string{"--ipvs-tcp-timeout"}},
		{name: "the word over the file's time", file: hour, args: []string{"--ipvs-tcp-timeout=recommended"}, want: recommended, overrides: []string{"--ipvs-tcp-timeout"}},
		{name: "over a file that says both", file: hour + "---\n" + profile, args: []string{"--ipvs-tcp-timeout=0"}, overrides: []string{"--ipvs-tcp-timeout"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := loaded(t, tt.file, tt.args...)
			if diff := cmp.Diff(tt.want, l.Config.Timeouts); diff != "" {
				t.Errorf("idle times (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.overrides, l.Overrides); diff != "" {
				t.Errorf("overrides (-want +got):\n%s", diff)
			}
		})
	}
	err := pflagError("--ipvs-tcp-timeout=recommend")
	if err == nil || !strings.Contains(err.Error(), `"recommend" for "--ipvs-tcp-timeout"`) || !strings.Contains(err.Error(), "the word recommended") {
		t.Errorf("error %v", err)
	}
}

// TestDrainBounds: both ends are in.
func TestDrainBounds(t *testing.T) {
	for text, want := range map[string]time.Duration{"0s": 0, "1h": time.Hour, "1500ms": 1500 * time.Millisecond} {
		if got := loaded(t, ownHead+"drain: "+text+"\n").Config.Drain; got != want {
			t.Errorf("file: %s is %s", text, got)
		}
		if got := loaded(t, ownHead+"drain: 7s\n", "--drain="+text).Config.Drain; got != want {
			t.Errorf("flag: %s is %s", text, got)
		}
	}
	if got := loaded(t, ownHead+"drain: null\n").Config.Drain; got != 30*time.Second {
		t.Errorf("default %s, want 30s", got)
	}
}
