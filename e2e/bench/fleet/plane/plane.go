// Package plane is the API server that a fleet of agents follows: the objects in it, changes of them, and what the server itself says
// about its work.
//
//	Start ──> etcd, kube-apiserver ──> Services, EndpointSlices, Nodes, as a cluster has them
//	          Change, Beat             what goes on in a cluster
//	          Usage, Metrics, Requests CPU and memory, counters by resource, who asked what and when
//
// Agents are the ServiceAccount of this project's manifests, by its name and groups, so that the server queues their requests as those
// of a cluster's agents (API priority and fairness). Only their requests are in the audit log.
package plane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// account is who the agents are.
const account = "system:serviceaccount:kube-system:kube-ipvs"

var agents = cluster.Identity{User: account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}}

// Options say what is in the API server.
type Options struct {
	Services, Endpoints, Nodes int // endpoints of each Service
	Log                        io.Writer
}

// Plane is a control plane with objects in it.
type Plane struct {
	*cluster.Cluster
	options Options
	dir     string
	client  kubernetes.Interface
	config  *rest.Config
}

// policy has the audit log hold what agents ask, once when it is answered and once when a watch ends.
const policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["` + account + `"]
- level: None
`

// Start starts a control plane and fills it. Close ends it.
func Start(ctx context.Context, o Options) (*Plane, error) {
	dir, err := os.MkdirTemp("", "kube-ipvs-fleet-")
	if err != nil {
		return nil, err
	}
	p := &Plane{options: o, dir: dir}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Plane) start(ctx context.Context) error {
	rules := filepath.Join(p.dir, "audit.yaml")
	if err := os.WriteFile(rules, []byte(policy), 0o600); err != nil {
		return err
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: filepath.Join(p.dir, "plane"), Log: p.options.Log,
		APIServerArgs: []string{"--audit-policy-file=" + rules, "--audit-log-path=" + p.auditLog()},
	})
	if err != nil {
		return fmt.Errorf("start an API server: %w", err)
	}
	p.Cluster = c
	text, err := c.Kubeconfig(ctx, cluster.Admin)
	if err != nil {
		return err
	}
	if p.config, err = clientcmd.RESTConfigFromKubeConfig(text); err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	p.config.QPS, p.config.ContentType = -1, runtime.ContentTypeProtobuf
	if p.client, err = kubernetes.NewForConfig(p.config); err != nil {
		return err
	}
	if err := p.permit(ctx); err != nil {
		return err
	}
	return p.fill(ctx)
}

// Close ends the API server and removes all it wrote.
func (p *Plane) Close() error {
	var err error
	if p.Cluster != nil {
		err = p.Cluster.Close()
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// Target is where the API server listens: host and port.
func (p *Plane) Target() string { return p.config.Host[len("https://"):] }

// permit lets agents read what those of this project and those of kube-proxy read.
func (p *Plane) permit(ctx context.Context) error {
	const name = "fleet"
	read := []string{"list", "watch"}
	role := &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbac.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "nodes"}, Verbs: read},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}, Verbs: read},
	}}
	if _, err := p.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make a role: %w", err)
	}
	binding := &rbac.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbac.Subject{{APIGroup: rbac.GroupName, Kind: rbac.UserKind, Name: account}},
	}
	_, err := p.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind a role: %w", err)
	}
	return nil
}

// Kubeconfig writes a file by which an agent reaches the server at an address of this machine, with a key of its own: so nothing of its
// connection is shared with another agent.
func (p *Plane) Kubeconfig(ctx context.Context, at string) (path string, err error) {
	text, err := p.Cluster.Kubeconfig(ctx, agents)
	if err != nil {
		return "", err
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	for _, one := range config.Clusters {
		one.Server = "https://" + at
	}
	f, err := os.CreateTemp(p.dir, "kubeconfig-")
	if err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	return f.Name(), clientcmd.WriteToFile(*config, f.Name())
}

// writers is how many requests are under way at once.
const writers = 16

func (p *Plane) fill(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range p.options.Nodes {
		group.Go(func() error {
			_, err := p.client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{})
			return err
		})
	}
	for i := range p.options.Services {
		group.Go(func() error { return p.create(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("fill the API server: %w", err)
	}
	return nil
}

func (p *Plane) create(ctx context.Context, i int) error {
	if _, err := p.client.CoreV1().Services(namespace).Create(ctx, service(i), metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := p.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice(i, p.options.Endpoints, p.options.Nodes, 0), metav1.CreateOptions{})
	return err
}

// Change writes the slice of a Service with one endpoint replaced: which one, and by what, the version says.
func (p *Plane) Change(ctx context.Context, i, version int) error {
	s := slice(i, p.options.Endpoints, p.options.Nodes, version)
	if _, err := p.client.DiscoveryV1().EndpointSlices(s.Namespace).Update(ctx, s, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("change slice %s: %w", s.Name, err)
	}
	return nil
}
