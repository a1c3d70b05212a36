package binaries

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/e2e/vm"
)

// The versions, as the modules beside this package pin them. The etcd is the one whose client Kubernetes is built with.
const (
	Kubernetes = "v1.37.2"
	Etcd       = "v3.7.0"
	Containerd = "v2.4.2"
	Flannel    = "v0.28.4"
	KubeRouter = "v2.1.0"
	MetalLB    = "v0.15.2"
)

// Variable names a directory with ready binaries. It is for places that have no go command and no cache, such as a guest.
const Variable = "KUBE_IPVS_CONTROLPLANE"

// ErrNotBuilt means that a binary is not in the cache yet.
var ErrNotBuilt = errors.New("not built yet; go run ./e2e/kube/build does it")

// Set holds the absolute paths of one control plane's programs, and of the proxy of the same version.
type Set struct {
	Etcd, APIServer, Kubectl, Proxy string
}

// Nodes holds the absolute paths of the programs that make a cluster of a control plane: its controllers, and those of a node.
type Nodes struct {
	ControllerManager, Scheduler, Kubelet string
	// Containerd is the daemon; its shim and ctr are in the same directory.
	Containerd string
}

// Neighbours holds the absolute paths of programs of other projects that run on nodes beside kube-ipvs.
type Neighbours struct {
	Flanneld, KubeRouter, Speaker string
}

// program is one thing to build.
type program struct {
	name, version string
	module        string // the directory below e2e/kube that pins it
	pkg           string // its main package
	ldflags       string
	minutes       int  // duration of a first build on two free cores
	cgo           bool // has parts in C
}

var programs = []program{
	{name: "etcd", version: Etcd, module: kubernetesModule, pkg: "go.etcd.io/etcd/server/v3", ldflags: "-s -w", minutes: 1},
	{name: "kube-apiserver", version: Kubernetes, module: kubernetesModule, pkg: "k8s.io/kubernetes/cmd/kube-apiserver", ldflags: stamp(), minutes: 5},
	{name: "kubectl", version: Kubernetes, module: kubernetesModule, pkg: "k8s.io/kubernetes/cmd/kubectl", ldflags: stamp(), minutes: 1},
	{name: "kube-proxy", version: Kubernetes, module: kubernetesModule, pkg: "k8s.io/kubernetes/cmd/kube-proxy", ldflags: stamp(), minutes: 1},
}

// nodePrograms come after programs, whose packages most of them share.
var nodePrograms = []program{
	{name: "kubelet", version: Kubernetes, module: kubernetesModule, pkg: "k8s.io/kubernetes/cmd/kubelet", ldflags: stamp(), minutes: 3},
	{name: "containerd", version: Containerd, module: containerdModule, pkg: containerdPackage + "containerd", ldflags: containerdStamp, minutes: 4},
	{name: "containerd-shim-runc-v2", version: Containerd, module: containerdModule, pkg: containerdPackage + "containerd-shim-runc-v2", ldflags: containerdStamp, minutes: 1},
	{name: "ctr", version: Containerd, module: containerdModule, pkg: containerdPackage + "ctr", ldflags: containerdStamp, minutes: 1},
	{name: "kube-controller-manager", version: Kubernetes, module: kubernetesModule, pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", ldflags: stamp(), minutes: 2},
	{name: "kube-scheduler", version: Kubernetes, module: kubernetesModule, pkg: "k8s.io/kubernetes/cmd/kube-scheduler", ldflags: stamp(), minutes: 1},
}

// neighbourPrograms are pinned by modules that have their names.
var neighbourPrograms = []program{
	{name: "flanneld", version: Flannel, module: "flannel", pkg: "github.com/flannel-io/flannel", ldflags: flannelStamp, minutes: 2, cgo: true},
	{name: "kube-router", version: KubeRouter, module: "kuberouter", pkg: "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router", ldflags: "-s -w", minutes: 2},
	{name: "speaker", version: MetalLB, module: "metallb", pkg: "go.universe.tf/metallb/speaker", ldflags: "-s -w", minutes: 2},
}

// Directories below e2e/kube, and what all programs of containerd have in common.
const (
	kubernetesModule  = "controlplane"
	containerdModule  = "containerd"
	containerdPackage = "github.com/containerd/containerd/v2/cmd/"
	containerdStamp   = "-s -w -X github.com/containerd/containerd/v2/version.Version=" + Containerd
	flannelStamp      = "-s -w -extldflags -static -X github.com/flannel-io/flannel/pkg/version.Version=" + Flannel
)

// stamp makes Kubernetes' programs report their version, which is "v0.0.0-master" in a build without its own scripts.
func stamp() string {
	parts := strings.SplitN(strings.TrimPrefix(Kubernetes, "v"), ".", 3)
	flags := "-s -w"
	for _, variable := range []string{"gitVersion=" + Kubernetes, "gitMajor=" + parts[0], "gitMinor=" + parts[1], "gitTreeState=clean"} {
		flags += " -X k8s.io/component-base/version." + variable
	}
	return flags
}

// Dir is where the binaries are or will be: $KUBE_IPVS_CONTROLPLANE, else a directory of the cache that package vm keeps. Its name
// changes with the versions and with how they are built.
func Dir() (string, error) {
	if dir := os.Getenv(Variable); dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := vm.CacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "controlplane-"+Kubernetes+"-"+recipe(programs)), nil
}

// NodesDir is where the binaries of nodes are or will be, in the same cache.
func NodesDir() (string, error) {
	cache, err := vm.CacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "nodes-"+Kubernetes+"-"+recipe(nodePrograms)), nil
}

// NeighboursDir is where the binaries of neighbours are or will be, in the same cache.
func NeighboursDir() (string, error) {
	cache, err := vm.CacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "neighbours-"+recipe(neighbourPrograms)), nil
}

// recipe is a short hash of everything that decides how binaries come out.
func recipe(list []program) string {
	hash := sha256.New()
	for _, p := range list {
		fmt.Fprintln(hash, p.name, p.version, p.pkg, p.ldflags)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:4])
}

// Find returns the binaries, or an error that wraps ErrNotBuilt and names the first that is missing.
func Find() (Set, error) {
	dir, err := Dir()
	if err != nil {
		return Set{}, err
	}
	if err := complete(dir, programs); err != nil {
		return Set{}, err
	}
	return setIn(dir), nil
}

// FindNodes returns the binaries of nodes, or an error that wraps ErrNotBuilt and names the first that is missing.
func FindNodes() (Nodes, error) {
	dir, err := NodesDir()
	if err != nil {
		return Nodes{}, err
	}
	if err := complete(dir, nodePrograms); err != nil {
		return Nodes{}, err
	}
	return nodesIn(dir), nil
}

// FindNeighbours returns the binaries of neighbours, or an error that wraps ErrNotBuilt and names the first that is missing.
func FindNeighbours() (Neighbours, error) {
	dir, err := NeighboursDir()
	if err != nil {
		return Neighbours{}, err
	}
	if err := complete(dir, neighbourPrograms); err != nil {
		return Neighbours{}, err
	}
	return neighboursIn(dir), nil
}

// complete names the first program that is not in the directory.
func complete(dir string, list []program) error {
	for _, p := range list {
		if !built(dir, p) {
			return fmt.Errorf("%s %s in %s: %w", p.name, p.version, dir, ErrNotBuilt)
		}
	}
	return nil
}

func setIn(dir string) Set {
	return Set{
		Etcd:      filepath.Join(dir, "etcd"),
		APIServer: filepath.Join(dir, "kube-apiserver"),
		Kubectl:   filepath.Join(dir, "kubectl"),
		Proxy:     filepath.Join(dir, "kube-proxy"),
	}
}

func nodesIn(dir string) Nodes {
	return Nodes{
		ControllerManager: filepath.Join(dir, "kube-controller-manager"),
		Scheduler:         filepath.Join(dir, "kube-scheduler"),
		Kubelet:           filepath.Join(dir, "kubelet"),
		Containerd:        filepath.Join(dir, "containerd"),
	}
}

func neighboursIn(dir string) Neighbours {
	return Neighbours{
		Flanneld:   filepath.Join(dir, "flanneld"),
		KubeRouter: filepath.Join(dir, "kube-router"),
		Speaker:    filepath.Join(dir, "speaker"),
	}
}

// built reports whether there is an executable file; an existing file is complete.
func built(dir string, p program) bool {
	info, err := os.Stat(filepath.Join(dir, p.name))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
