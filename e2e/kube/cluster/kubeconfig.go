package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// Identity is who a client is. Either User, with Groups, proven by a certificate, or Token.
type Identity struct {
	User   string
	Groups []string
	Token  string // token of a ServiceAccount, from Cluster.Token
}

// Admin may do everything: its group is above all authorization.
var Admin = Identity{User: "admin", Groups: []string{"system:masters"}}

// config is client-go's kubeconfig, version v1, as far as it is needed here.
type config struct {
	APIVersion     string  `json:"apiVersion"`
	Kind           string  `json:"kind"`
	Clusters       []named `json:"clusters"`
	Users          []named `json:"users"`
	Contexts       []named `json:"contexts"`
	CurrentContext string  `json:"current-context"`
}

type named struct {
	Name    string          `json:"name"`
	Cluster *clusterSection `json:"cluster,omitempty"`
	User    *userSection    `json:"user,omitempty"`
	Context *contextSection `json:"context,omitempty"`
}

type clusterSection struct {
	Server string `json:"server"`
	CA     []byte `json:"certificate-authority-data"`
}

type userSection struct {
	Cert  []byte `json:"client-certificate-data,omitempty"`
	Key   []byte `json:"client-key-data,omitempty"`
	Token string `json:"token,omitempty"`
}

type contextSection struct {
	Cluster string `json:"cluster"`
	User    string `json:"user"`
}

// Kubeconfig returns a file with which a client on this machine has the given identity. It holds
// everything, so it may be copied.
func (c *Cluster) Kubeconfig(_ context.Context, who Identity) ([]byte, error) {
	return c.KubeconfigAt(who, c.options.local())
}

// KubeconfigAt is Kubeconfig for clients that reach the server under another address of the options.
func (c *Cluster) KubeconfigAt(who Identity, addr netip.Addr) ([]byte, error) {
	user := userSection{Token: who.Token}
	if who.Token == "" {
		proof, err := c.ca.client(who.User, who.Groups...)
		if err != nil {
			return nil, err
		}
		user.Cert, user.Key = proof.cert, proof.key
	}
	text, err := yaml.Marshal(config{
		APIVersion:     "v1",
		Kind:           "Config",
		Clusters:       []named{{Name: "e2e", Cluster: &clusterSection{Server: c.Server(addr), CA: c.ca.pem}}},
		Users:          []named{{Name: "client", User: &user}},
		Contexts:       []named{{Name: "e2e", Context: &contextSection{Cluster: "e2e", User: "client"}}},
		CurrentContext: "e2e",
	})
	if err != nil {
		return nil, fmt.Errorf("write a kubeconfig for %s: %w", who.User, err)
	}
	return text, nil
}

// writeAdmin puts the administrator's kubeconfig beside the logs, where a person can use it while a test hangs.
func (c *Cluster) writeAdmin() error {
	text, err := c.KubeconfigAt(Admin, c.options.local())
	if err != nil {
		return err
	}
	return os.WriteFile(c.AdminKubeconfig(), text, 0o600)
}

// AdminKubeconfig is the path of a kubeconfig for Admin on this machine.
func (c *Cluster) AdminKubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }
