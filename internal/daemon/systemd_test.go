package daemon

import (
	"context"
	"os"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/httpd"
	"github.com/kube-ipvs/kube-ipvs/internal/sdnotify"
)

func TestSupervisionFollowsHealth(t *testing.T) {
	for _, tt := range []struct {
		name  string
		check httpd.Check
		want  sdnotify.State
	}{
		{"all is well", httpd.Check{Health: true, Live: true, Ready: true}, sdnotify.State{Ready: true, Alive: true}},
		{"sources are not in sync", httpd.Check{Health: true, Ready: true, Reason: "no answer yet"}, sdnotify.State{Alive: true}},
		{"the loop is stuck", httpd.Check{Health: true, Live: true, Reason: "no pass for 3m"}, sdnotify.State{}},
		{"a row is refused", httpd.Check{Ready: true, Reason: "no space"}, sdnotify.State{Ready: true, Alive: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := supervision(func(context.Context) httpd.Report {
				return httpd.Report{Checks: []httpd.Check{{Health: true, Live: true, Ready: true}, tt.check}}
			})
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestLaunchedProcessesDoNotInheritTheSocket(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	t.Setenv("WATCHDOG_USEC", "30000000")
	if newNotifier(zap.NewNop()) == nil {
		t.Error("no notifier")
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC"} {
		if value, there := os.LookupEnv(name); there {
			t.Errorf("%s is still %q", name, value)
		}
	}
}
