package daemon

import (
	"context"
	"os"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/httpd"
	"github.com/kube-ipvs/kube-ipvs/internal/sdnotify"
)

// newNotifier returns what tells systemd of this process. It clears the variables, so the
// processes that the agent launches from then on do not inherit them.
func newNotifier(log *zap.Logger) *sdnotify.Notifier {
	n := sdnotify.New(log, os.Getenv, os.Getpid())
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(name) // fails only for a bad name
	}
	return n
}

// supervision returns the state that is sent to systemd: the process is ready once all checks of
// /healthz pass except this node's eligibility, and alive while /livez passes.
func supervision(report func(context.Context) httpd.Report) sdnotify.State {
	s := sdnotify.State{Ready: true, Alive: true}
	for _, c := range report(context.Background()).Checks {
		s.Ready = s.Ready && (c.Reason == "" || !c.Health)
		s.Alive = s.Alive && (c.Reason == "" || !c.Live)
	}
	return s
}
