package packet

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// token and password are what an agent may show only to an API server.
const (
	token    = "s3cr3t-t0k3n-of-the-agent"
	password = "s3cr3t-p4ssw0rd"
)

// TestIPTablesKeepsItsTokenSecret: the API server fails in several ways, the log is as talkative as
// can be, and everything that can be asked is asked. None of it contains the secrets that the agent
// sends to the server.
func TestIPTablesKeepsItsTokenSecret(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]string{
		"token: " + token: "Bearer " + token,
		"{username: kube-ipvs, password: " + password + "}": "Basic ",
	} {
		kind, _, _ := strings.Cut(want, " ")
		t.Run(kind, func(t *testing.T) {
			w := buildWorld(t)
			server, shown := w.node.failing(t, want)
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			if !strings.HasPrefix(user, "{") {
				user = "{" + user + "}"
			}
			w.node.must(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: %s}]
`, server, user), 0o600))
			n := newAgent(t, w.node, "--proxy-mode", "iptables", "--oom-score-adj", "0", "--kubeconfig", kubeconfig, "-v", "10", "--profiling")
			drop := slices.Index(n.flags, "--source-dir")
			n.flags = slices.Delete(n.flags, drop, drop+2)
			n.launch(t, append([]string{program()}, n.flags...))
			poll(t, "the agent to ask each kind of thing three times", settleTimeout, func() error {
				if asked := shown.Load(); asked < 9 {
					return fmt.Errorf("asked %d times", asked)
				}
				return nil
			})
			told := n.everything(t)
			told["log"] = n.output.String()
			for where, text := range told {
				for _, secret := range []string{token, password, "a3ViZS1pcHZzOnMzY3Iz"} { // the last is of both, in base64
					if strings.Contains(text, secret) {
						t.Errorf("%s tells %s:\n%s", where, secret, text)
					}
				}
			}
			if !strings.Contains(told["log"], "debug") && !strings.Contains(told["log"], "DEBUG") {
				t.Errorf("the log is not talkative:\n%s", n.output.Tail())
			}
		})
	}
}

// failing is an API server in the node's network that rejects every client, or breaks, or is busy.
// It counts the requests that show what is wanted of them.
func (n *node) failing(t *testing.T, want string) (url string, shown *atomic.Int64) {
	t.Helper()
	shown = &atomic.Int64{}
	codes := []int{http.StatusUnauthorized, http.StatusInternalServerError, http.StatusForbidden, http.StatusTooManyRequests}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count := shown.Load()
		if strings.HasPrefix(r.Header.Get("Authorization"), want) {
			count = shown.Add(1)
		}
		http.Error(w, "no", codes[int(count)%len(codes)])
	}))
	n.must(t, s.Listener.Close())
	n.must(t, n.do(func() (err error) { s.Listener, err = net.Listen("tcp", "127.0.0.1:0"); return err }))
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, shown
}

// everything is what the agent answers on its socket and its listeners, by path.
func (n *proxy) everything(t *testing.T) map[string]string {
	t.Helper()
	told := map[string]string{}
	ask := func(path string, args ...string) {
		out, err := n.try("curl", append([]string{"-s", "--max-time", "20"}, args...)...)
		if err != nil || out == "" {
			t.Errorf("%s: %q, error %v", path, out, err)
		}
		told[path] = out
	}
	for _, path := range []string{"status", "services", "frontends", "backends", "pending", "conflicts", "draining", "names", "rows", "explain?service=a/b"} {
		ask("socket "+path, "--unix-socket", n.socket(), "http://agent/v1/"+path)
	}
	for _, path := range []string{"metrics", "configz", "flagz", "statusz", "debug/pprof/cmdline", "debug/pprof/goroutine?debug=2"} {
		ask(path, "http://127.0.0.1:10249/"+path)
	}
	for _, path := range []string{"healthz", "readyz", "livez"} {
		ask(path, "http://127.0.0.1:10256/"+path)
	}
	return told
}

// socket is where the agent answers on this machine.
func (n *proxy) socket() string {
	return filepath.Join(n.flags[slices.Index(n.flags, "--run-dir")+1], "agent.sock")
}

// listens expects the documented listeners in the node's network and no others: those of manifests/docs/security.md, and the port that
// a Service has for health checks.
func (n *proxy) listens(t *testing.T, socket string, health ...string) {
	t.Helper()
	want := append([]string{"tcp *:10256", "tcp 127.0.0.1:10249", "u_str " + socket, "u_str @kube-ipvs.agent"}, health...)
	var got []string
	for line := range strings.Lines(n.run(t, "ss", "-Hln", "--tcp", "--udp", "--raw", "--sctp", "--packet", "--unix")) {
		f := strings.Fields(line)
		if len(f) < 5 || (f[0] == "raw" || f[0] == "???") && strings.HasSuffix(f[4], ":255") { // iptables-legacy asks the kernel by such a socket, which receives nothing (IPPROTO_RAW, raw(7))
			continue
		}
		got = append(got, f[0]+" "+f[4])
	}
	slices.Sort(want)
	slices.Sort(got)
	same(t, "listeners", view{"": want}, view{"": got})
}
