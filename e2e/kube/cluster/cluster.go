package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/binaries"
)

// Cluster is a running control plane. Its methods are not for concurrent use, but Kubectl and Apply are.
type Cluster struct {
	options  Options
	binaries binaries.Set
	dir      string
	discard  bool // Close removes dir
	port     int

	ca        *authority
	http      *http.Client // as Admin
	etcd      *etcd
	apiserver process
	replaced  replaced
}

// Start makes new keys, starts etcd and the API server and returns when both are ready. It fails with binaries.ErrNotBuilt when
// the programs are not there, and with the end of their logs when they do not start. Nothing runs after an error.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	o.Defaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c, err := prepare(o)
	if err != nil {
		return nil, fmt.Errorf("prepare a control plane: %w", err)
	}
	if err := errors.Join(c.StartEtcd(ctx), ctx.Err()); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// prepare does everything but starting.
func prepare(o Options) (*Cluster, error) {
	c := &Cluster{options: o, binaries: o.Binaries}
	if c.binaries == (binaries.Set{}) {
		found, err := binaries.Find()
		if err != nil {
			return nil, err
		}
		c.binaries = found
	}
	if err := c.makeDir(); err != nil {
		return nil, err
	}
	if err := c.makeIdentity(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) makeDir() (err error) {
	if c.options.Dir == "" {
		c.discard = true
		c.dir, err = os.MkdirTemp("", "kube-ipvs-controlplane-")
		return err
	}
	if c.dir, err = filepath.Abs(c.options.Dir); err != nil {
		return err
	}
	return os.MkdirAll(c.dir, 0o700)
}

// makeIdentity chooses ports, makes keys and writes them, and lays out how the programs are called.
func (c *Cluster) makeIdentity() error {
	loopback := netip.MustParseAddr("127.0.0.1")
	ports, err := freePorts(loopback, 2)
	if err != nil {
		return err
	}
	if c.port = c.options.Port; c.port == 0 {
		free, err := freePorts(c.options.Bind, 1)
		if err != nil {
			return err
		}
		c.port = free[0]
	}
	if c.ca, err = newAuthority(); err != nil {
		return err
	}
	f, err := writeFiles(c.dir, c.ca, c.options.certified())
	if err != nil {
		return err
	}
	if c.http, err = c.client(Admin); err != nil {
		return err
	}
	c.etcd = newEtcd(c.binaries.Etcd, c.dir, ports[0], ports[1])
	c.apiserver = process{path: c.binaries.APIServer, log: filepath.Join(c.dir, "kube-apiserver.log")}
	c.apiserver.args = apiServerArgs(c.options, c.port, c.etcd.url, f)
	return c.writeAdmin()
}

// client speaks to the API server without a proxy, whatever is in the environment.
func (c *Cluster) client(who Identity) (*http.Client, error) {
	proof, err := c.ca.client(who.User, who.Groups...)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(proof.cert, proof.key)
	if err != nil {
		return nil, fmt.Errorf("use the certificate of %s: %w", who.User, err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.ca.cert)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}},
		DisableKeepAlives: true, // the next server must not be asked through the last one's connection
	}}, nil
}

// Server is the URL of the API under one of the addresses that the options name.
func (c *Cluster) Server(addr netip.Addr) string { return serverURL(addr, c.port) }

// Dir holds etcd.log and kube-apiserver.log, admin.kubeconfig, keys and data.
func (c *Cluster) Dir() string { return c.dir }

// StartEtcd starts etcd after StopEtcd, with the data it had, and waits until it answers.
func (c *Cluster) StartEtcd(ctx context.Context) error {
	if err := c.etcd.start(); err != nil {
		return err
	}
	return c.timed("etcd", func() error { return c.etcd.await(ctx) })
}

// StopEtcd ends etcd, without a chance to say goodbye. The API server goes on and answers what needs no store.
func (c *Cluster) StopEtcd(context.Context) error { return c.etcd.end(syscall.SIGKILL) }

// StartAPIServer starts the API server after it was stopped or killed, on the same port, and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.apiserver.start(); err != nil {
		return err
	}
	return c.timed("kube-apiserver", func() error { return c.awaitAPIServer(ctx) })
}

// StopAPIServer ends the API server as an upgrade does: it closes its watches and finishes its requests.
func (c *Cluster) StopAPIServer(context.Context) error { return c.apiserver.end(syscall.SIGTERM) }

// KillAPIServer ends the API server as a crash does: connections close in the middle of an answer.
func (c *Cluster) KillAPIServer(context.Context) error { return c.apiserver.end(syscall.SIGKILL) }

// PauseAPIServer makes the API server hang: connections stay open, new ones are accepted by the kernel, nothing is answered.
func (c *Cluster) PauseAPIServer(context.Context) error { return c.apiserver.signal(syscall.SIGSTOP) }

// ResumeAPIServer lets a paused API server go on.
func (c *Cluster) ResumeAPIServer(context.Context) error { return c.apiserver.signal(syscall.SIGCONT) }

// Compact makes etcd delete every resource version before the newest, which it returns. Lists at an older version, and the
// next pages of older lists, then fail with 410 Gone. Watches need no Compact for that: the API server answers them from
// memory, so each restart of it ends those from versions before the restart with 410 Gone.
func (c *Cluster) Compact(ctx context.Context) (int64, error) { return c.etcd.compact(ctx) }

// Close ends both programs and removes the directory unless the options named it. It may be called again.
func (c *Cluster) Close() error {
	err := c.apiserver.end(syscall.SIGKILL)
	if c.etcd != nil {
		err = errors.Join(err, c.etcd.end(syscall.SIGKILL))
	}
	if c.discard {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}

// timed logs how long a start took.
func (c *Cluster) timed(what string, wait func() error) error {
	start := time.Now()
	if err := wait(); err != nil {
		return err
	}
	fmt.Fprintf(c.options.Log, "cluster: %s is ready after %.1fs\n", what, time.Since(start).Seconds())
	return nil
}

// APIServerPID is the process of the API server, for measurements; 0 while it does not run. It is
// another one after each start.
func (c *Cluster) APIServerPID() int { return c.apiserver.pid() }
