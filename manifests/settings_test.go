package manifests_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// mounted is where the pods see the ConfigMap.
const mounted = "/var/lib/kube-proxy/"

// load is what the program makes of a command line, where the files of a ConfigMap are mounted and
// the node is worker-1. A warning is a mistake here.
func load(t *testing.T, args []string, files map[string]string) config.Config {
	t.Helper()
	dir := t.TempDir() + "/"
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inPod := strings.NewReplacer("="+mounted, "="+dir, "$(NODE_NAME)", "worker-1")
	settings := config.Defaults()
	flags := pflag.NewFlagSet("kube-ipvs", pflag.ContinueOnError)
	config.Bind(flags, &settings)
	for _, arg := range args {
		if err := flags.Parse([]string{inPod.Replace(arg)}); err != nil {
			t.Fatalf("%s: %v", arg, err)
		}
	}
	got, err := config.NewLoader(flags).Load("host")
	if err != nil || len(got.Warnings) > 0 || len(got.Overrides) > 0 {
		t.Fatalf("%q: error %v, warnings %q, overrides %q", args, err, got.Warnings, got.Overrides)
	}
	return got.Config
}

func TestArgumentsAreThoseOfTheProgram(t *testing.T) {
	files := object[*corev1.ConfigMap](t, base(t)...).Data
	pod := object[*appsv1.DaemonSet](t, base(t)...).Spec.Template.Spec
	c := load(t, only(t, pod.Containers).Args, files)
	equal(t, "node", "worker-1", c.NodeName)
	equal(t, "kubeconfig", mounted+"kubeconfig.conf", c.Client.Kubeconfig)
	equal(t, "mode", config.ModeIPVS, c.Mode)
	equal(t, "the agent runs", [2]bool{}, [2]bool{c.InitOnly, c.Cleanup})
	equal(t, "run directory", only(t, pod.Containers).VolumeMounts[1].MountPath, c.RunDir)
	equal(t, "init prepares", true, load(t, only(t, merged(t, "base/daemonset.yaml", loading).Spec.Template.Spec.InitContainers).Args, files).InitOnly)

	clean := object[*appsv1.DaemonSet](t, "overlays/cleanup/daemonset.yaml").Spec.Template.Spec
	equal(t, "cleanup cleans", []string{"cleanup"}, only(t, clean.InitContainers).Args)
}

// The arguments of kubeadm's DaemonSet start kube-ipvs without changes.
func TestArgumentsOfKubeadm(t *testing.T) {
	command := only(t, merged(t, kubeadm, swap).Spec.Template.Spec.Containers).Command
	files := map[string]string{"config.conf": `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ""
clusterCIDR: 10.244.0.0/16
clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}
`}
	equal(t, "program", "/usr/local/bin/kube-proxy", command[0])
	c := load(t, command[1:], files)
	equal(t, "node", "worker-1", c.NodeName)
	equal(t, "mode", config.ModeIPVS, c.Mode)
}

// The settings that the ConfigMap shows as comments are known, and are the defaults.
func TestCommentsShowDefaults(t *testing.T) {
	args := []string{"--config=" + mounted + "config.conf"}
	file := object[*corev1.ConfigMap](t, base(t)...).Data["config.conf"]
	comment := regexp.MustCompile(`(?m)^# ([a-z][A-Za-z]+: )`)
	shown := comment.ReplaceAllString(file, "$1")
	if n := len(comment.FindAllString(file, -1)); n < 9 {
		t.Fatalf("%d settings shown, want at least 9", n)
	}
	want := load(t, args, map[string]string{"config.conf": file})
	got := load(t, args, map[string]string{"config.conf": shown})
	if live, restart := config.Compare(want, got); len(live)+len(restart) > 0 {
		t.Errorf("not the defaults: %v %v", live, restart)
	}
}

// The ServiceAccount is what the pod has, and the server is for people to fill in.
func TestKubeconfig(t *testing.T) {
	var got struct {
		APIVersion     string `json:"apiVersion"`
		Kind           string `json:"kind"`
		CurrentContext string `json:"current-context"`
		Clusters       []struct {
			Name    string `json:"name"`
			Cluster struct {
				CA     string `json:"certificate-authority"`
				Server string `json:"server"`
			} `json:"cluster"`
		} `json:"clusters"`
		Contexts []struct {
			Name    string                         `json:"name"`
			Context struct{ Cluster, User string } `json:"context"`
		} `json:"contexts"`
		Users []struct {
			Name string                     `json:"name"`
			User struct{ TokenFile string } `json:"user"`
		} `json:"users"`
	}
	strict(t, "kubeconfig.conf", []byte(object[*corev1.ConfigMap](t, base(t)...).Data["kubeconfig.conf"]), &got)
	cluster, context, user := got.Clusters[0], got.Contexts[0], got.Users[0]
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	equal(t, "kind", "v1 Config", got.APIVersion+" "+got.Kind)
	equal(t, "files", []string{account + "ca.crt", account + "token"}, []string{cluster.Cluster.CA, user.User.TokenFile})
	equal(t, "names", []string{context.Name, cluster.Name, user.Name}, []string{got.CurrentContext, context.Context.Cluster, context.Context.User})
	// The sed of the page looks for it. The name never resolves, so forgetting it shows.
	page := string(read(t, "docs/install.md"))
	for _, text := range []string{cluster.Cluster.Server, `clusterCIDR: ""`, "kube-ipvs:dev"} {
		if !strings.Contains(page, "s|"+text+"|") {
			t.Errorf("docs/install.md does not replace %s", text)
		}
	}
}

// The unit's command line is known, and what it takes away the program does not need.
func TestUnit(t *testing.T) {
	unit := map[string]string{}
	for line := range strings.Lines(string(read(t, "systemd/kube-ipvs.service"))) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			unit[key] = value
		}
	}
	args := strings.Fields(unit["ExecStart"])
	if n := len(args); n < 2 || args[n-1] != "$KUBE_IPVS_ARGS" {
		t.Fatalf("ExecStart=%s", unit["ExecStart"])
	}
	c := load(t, args[1:len(args)-1], nil)
	equal(t, "run directory", "/run/"+unit["RuntimeDirectory"], c.RunDir)
	equal(t, "source is made", true, slices.Contains(strings.Fields(unit["ConfigurationDirectory"]), strings.TrimPrefix(c.SourceDir, "/etc/")))
	equal(t, "capabilities", "CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_MODULE", unit["CapabilityBoundingSet"])
	for _, breaks := range []string{"ProtectKernelTunables", "ProtectKernelModules", "PrivateNetwork", "ProcSubset", "DynamicUser"} {
		if unit[breaks] != "" {
			t.Errorf("%s=%s: sysctls, modules and the host's network are its work", breaks, unit[breaks])
		}
	}
}
