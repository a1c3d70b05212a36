package cluster

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// prepared is a cluster that has everything but processes.
func prepared(t *testing.T, o Options) *Cluster {
	t.Helper()
	o.Binaries.APIServer = "/no/such/kube-apiserver"
	o.Defaults()
	c, err := prepare(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// serveAs answers "/whoami" with the user and the groups of the certificate, using the identity that c made for its server.
func serveAs(t *testing.T, c *Cluster) {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(c.dir, "server.crt"), filepath.Join(c.dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		_, _ = w.Write([]byte(subject.CommonName + " " + strings.Join(subject.Organization, ",")))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)))
	if err != nil {
		t.Fatal(err)
	}
	server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)
}

// TestIdentities lets the certificates of both sides meet.
func TestIdentities(t *testing.T) {
	c := prepared(t, Options{Reached: []netip.Addr{HostFromGuest}})
	serveAs(t, c)
	for want, who := range map[string]Identity{
		"admin system:masters": Admin,
		"visitor ":             {User: "visitor"},
		"a b,c":                {User: "a", Groups: []string{"b", "c"}},
	} {
		client, err := c.client(who)
		if err != nil {
			t.Fatal(err)
		}
		for _, url := range []string{c.Server(c.options.local()), "https://localhost:" + strconv.Itoa(c.port)} {
			answer, err := client.Get(url)
			if err != nil {
				t.Errorf("%s at %s: %v", who.User, url, err)
				continue
			}
			var text strings.Builder
			_ = answer.Write(&text)
			answer.Body.Close()
			if !strings.HasSuffix(text.String(), "\r\n"+want) {
				t.Errorf("%s at %s is taken for %q, want %q", who.User, url, text.String(), want)
			}
		}
	}
}

func TestServerCertificateHoldsAllAddresses(t *testing.T) {
	c := prepared(t, Options{Reached: addrs("10.0.2.2", "fd00::1")})
	cert, err := tls.LoadX509KeyPair(filepath.Join(c.dir, "server.crt"), filepath.Join(c.dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"127.0.0.1", "10.0.2.2", "fd00::1", "localhost"} {
		if err := cert.Leaf.VerifyHostname(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := cert.Leaf.VerifyHostname("10.0.2.3"); err == nil {
		t.Error("the certificate is good for an address that no option named")
	}
}

func TestKubeconfig(t *testing.T) {
	c := prepared(t, Options{Port: 6443, Reached: []netip.Addr{HostFromGuest}})
	tests := []struct {
		name, wantServer, wantToken string
		who                         Identity
		addr                        netip.Addr
	}{
		{name: "certificate, here", who: Admin, wantServer: "https://127.0.0.1:6443"},
		{name: "token, in a guest", who: Identity{Token: "secret"}, addr: HostFromGuest, wantServer: "https://10.0.2.2:6443", wantToken: "secret"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, err := c.Kubeconfig(t.Context(), tt.who)
			if tt.addr.IsValid() {
				text, err = c.KubeconfigAt(tt.who, tt.addr)
			}
			if err != nil {
				t.Fatal(err)
			}
			var got config
			if err := yaml.UnmarshalStrict(text, &got); err != nil {
				t.Fatal(err)
			}
			user := got.Users[0].User
			if got.Clusters[0].Cluster.Server != tt.wantServer || user.Token != tt.wantToken || (user.Cert == nil) != (tt.wantToken != "") {
				t.Errorf("kubeconfig names %s and the token %q, certificate of %d bytes:\n%s", got.Clusters[0].Cluster.Server, user.Token, len(user.Cert), text)
			}
			if string(got.Clusters[0].Cluster.CA) != string(c.ca.pem) || got.CurrentContext != got.Contexts[0].Name {
				t.Errorf("the authority or the context is wrong:\n%s", text)
			}
		})
	}
}

func TestCloseRemovesOnlyWhatWasTemporary(t *testing.T) {
	mine := t.TempDir()
	for _, tt := range []struct {
		name, dir string
	}{{"temporary", ""}, {"named by the options", mine}} {
		t.Run(tt.name, func(t *testing.T) {
			c := prepared(t, Options{Dir: tt.dir})
			if info, err := os.Stat(c.AdminKubeconfig()); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the administrator's kubeconfig: %v, %v, want one that only its owner reads", info, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(c.Dir()); os.IsNotExist(err) != (tt.dir == "") {
				t.Errorf("the directory after Close: %v", err)
			}
		})
	}
}
