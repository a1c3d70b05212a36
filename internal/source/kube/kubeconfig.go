package kube

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// accountDir is where the kubelet puts what a pod needs to reach its API server.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

func restConfig(o ClientOptions) (*rest.Config, error) {
	var config *rest.Config
	var err error
	switch {
	case o.Kubeconfig != "":
		config, err = fromKubeconfig(o.Kubeconfig, o.Master)
	case o.Master != "":
		config = &rest.Config{Host: o.Master}
	default:
		config, err = inCluster(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), accountDir)
	}
	if err != nil {
		return nil, err
	}
	return config, checkConfig(config, o)
}

// fromKubeconfig reads a kubeconfig, and nothing else: clientcmd's usual loader takes
// the cluster of the process instead of a file that is empty.
func fromKubeconfig(path, master string) (*rest.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w; %s", err, fileRemedy(err, "--kubeconfig"))
	}
	file, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w; it is not the YAML or JSON of a kubeconfig", path, err)
	}
	if err := checkContext(file, path); err != nil {
		return nil, err
	}
	for _, c := range file.Clusters {
		c.LocationOfOrigin = path
	}
	for _, a := range file.AuthInfos {
		a.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	overrides := clientcmd.ConfigOverrides{}
	overrides.ClusterInfo.Server = master
	config, err := clientcmd.NewNonInteractiveClientConfig(*file, file.CurrentContext, &overrides, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w; correct what it names, or put the file there", path, err)
	}
	return config, nil
}

// checkContext finds what clientcmd calls an invalid configuration, and names it.
func checkContext(file *api.Config, path string) error {
	if len(file.Clusters) == 0 {
		return fmt.Errorf("kubeconfig %s names no cluster; is it the right file?", path)
	}
	if file.CurrentContext == "" {
		return fmt.Errorf("kubeconfig %s has no current-context; choose one with kubectl config use-context", path)
	}
	current, ok := file.Contexts[file.CurrentContext]
	if !ok {
		return fmt.Errorf("kubeconfig %s has no context %q, which its current-context names; choose one with kubectl config use-context", path, file.CurrentContext)
	}
	if _, ok := file.Clusters[current.Cluster]; !ok {
		return fmt.Errorf("kubeconfig %s has no cluster %q, which its context %q names", path, current.Cluster, file.CurrentContext)
	}
	if _, ok := file.AuthInfos[current.AuthInfo]; !ok && current.AuthInfo != "" {
		return fmt.Errorf("kubeconfig %s has no user %q, which its context %q names", path, current.AuthInfo, file.CurrentContext)
	}
	return nil
}

// inCluster uses the environment of a pod: two variables and a directory. A CA that is not there is
// an error: the system's would be tried, and no API server's is among them.
func inCluster(host, port, dir string) (*rest.Config, error) {
	if host == "" || port == "" {
		return nil, ErrNoCluster
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return &rest.Config{
		Host:            "https://" + host + ":" + port,
		BearerTokenFile: filepath.Join(dir, "token"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "ca.crt")},
	}, nil
}

// fileRemedy is what helps against an error of reading a file.
func fileRemedy(err error, option string) string {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "give " + option + " a file that exists here; in a container it has to be mounted"
	case errors.Is(err, os.ErrPermission):
		return "make it readable for this process"
	}
	return "give " + option + " a file"
}

// checkServer reports why a URL cannot be that of an API server.
func checkServer(server, from string) error {
	const remedy = "write https://HOST:PORT"
	if server == "" {
		return fmt.Errorf("%s names no server; %s", from, remedy)
	}
	if !strings.Contains(server, "://") {
		server = "https://" + server // as client-go reads it
	}
	u, err := url.Parse(server)
	switch {
	case err != nil:
		return fmt.Errorf("server of %s: %w; %s", from, err, remedy)
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("server %s of %s: scheme %q is neither https nor http; %s", server, from, u.Scheme, remedy)
	case u.Hostname() == "":
		return fmt.Errorf("server %s of %s names no host; %s", server, from, remedy)
	}
	return nil
}
