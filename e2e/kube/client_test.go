package kube

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// kubeconfig is what a client needs of one: the test reads it from where the client is, which may be a guest.
type kubeconfig struct {
	Clusters []struct {
		Cluster struct {
			Server string `json:"server"`
			CA     []byte `json:"certificate-authority-data"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		User struct {
			Cert  []byte `json:"client-certificate-data"`
			Key   []byte `json:"client-key-data"`
			Token string `json:"token"`
		} `json:"user"`
	} `json:"users"`
}

// list requests a resource of the core API with the given identity, and returns the HTTP status and
// the body.
func list(t *testing.T, c cluster.Control, who cluster.Identity, resource string) (status int, body string) {
	t.Helper()
	text, err := c.Kubeconfig(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	var config kubeconfig
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Clusters[0].Cluster.Server+"/api/v1/"+resource, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token := config.Users[0].User.Token; token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := config.client(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

func (k kubeconfig) client(t *testing.T) *http.Client {
	t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(k.Clusters[0].Cluster.CA) {
		t.Fatal("the kubeconfig has no authority")
	}
	if user := k.Users[0].User; len(user.Cert) > 0 {
		cert, err := tls.X509KeyPair(user.Cert, user.Key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: time.Minute}
}
