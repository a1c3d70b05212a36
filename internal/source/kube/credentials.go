package kube

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/rest"
)

// checkConfig reads what the client is going to read, for errors that name the file;
// those of client-go and crypto/tls name none, or come with the first request.
func checkConfig(c *rest.Config, o ClientOptions) error {
	from := "kubeconfig " + o.Kubeconfig
	switch {
	case o.Master != "":
		from = "--master"
	case o.Kubeconfig == "":
		from = "KUBERNETES_SERVICE_HOST"
	}
	if err := checkServer(c.Host, from); err != nil {
		return err
	}
	if o.Kubeconfig != "" {
		from = "kubeconfig " + o.Kubeconfig
	}
	if err := checkAuthority(c.TLSClientConfig, from); err != nil {
		return err
	}
	if err := checkPair(c.TLSClientConfig, from); err != nil {
		return err
	}
	return checkToken(c, from)
}

func checkAuthority(c rest.TLSClientConfig, from string) error {
	text, name := c.CAData, "certificate-authority-data"
	if len(text) == 0 && c.CAFile != "" {
		var err error
		if text, err = os.ReadFile(c.CAFile); err != nil {
			return missing("CA certificate of the API server", from, err)
		}
		name = c.CAFile
	}
	if len(text) == 0 && name == "certificate-authority-data" {
		return nil
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return fmt.Errorf("CA certificate of the API server, %s in %s: no certificate in PEM form in it; copy the cluster's ca.crt", name, from)
	}
	return nil
}

func checkPair(c rest.TLSClientConfig, from string) error {
	cert, key := c.CertData, c.KeyData
	for _, part := range []struct {
		text *[]byte
		file string
		what string
	}{{&cert, c.CertFile, "client certificate"}, {&key, c.KeyFile, "client key"}} {
		if len(*part.text) > 0 || part.file == "" {
			continue
		}
		text, err := os.ReadFile(part.file)
		if err != nil {
			return missing(part.what, from, err)
		}
		*part.text = text
	}
	if len(cert) == 0 && len(key) == 0 {
		return nil
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		return fmt.Errorf("client certificate %s and key %s of %s: %w; both have to be PEM and belong together", inline(c.CertFile), inline(c.KeyFile), from, err)
	}
	return nil
}

func checkToken(c *rest.Config, from string) error {
	if c.BearerTokenFile == "" {
		return nil
	}
	token, err := os.ReadFile(c.BearerTokenFile)
	if err != nil {
		return missing("token", from, err)
	}
	if strings.TrimSpace(string(token)) == "" {
		return fmt.Errorf("token %s of %s: the file is empty; write a token of a ServiceAccount into it", c.BearerTokenFile, from)
	}
	return nil
}

// missing returns the error for a file that cannot be read; err names it.
func missing(what, from string, err error) error {
	remedy := "correct the path there, or put the file in its place"
	if from == "KUBERNETES_SERVICE_HOST" {
		remedy = "does the pod have automountServiceAccountToken: false? else give --kubeconfig"
	}
	return fmt.Errorf("%s of %s: %w; %s", what, from, err, remedy)
}

func inline(file string) string {
	if file == "" {
		return "(in the kubeconfig itself)"
	}
	return file
}
