package telemetry

import (
	"runtime"
	"strings"
)

// Build sets the information of the build: the version of this program, and the release of Kubernetes
// it behaves as, like v1.37.2. The latter is kubernetes_build_info: alerts compare it
// over the components of a cluster (KubeVersionMismatch), and a version of ours would
// never match. Nothing but the release is known of how that was built. Without one,
// kubernetes_build_info is absent.
func (m *Metrics) Build(version, kubernetes string) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	m.pullGauge(ours+"build_info", "Always 1; the labels are the version of kube-ipvs.",
		func(e emit) { e(1, version, runtime.Version(), platform) }, "version", "go_version", "platform")
	if kubernetes == "" {
		return
	}
	major, minor := release(kubernetes)
	m.pullGauge("kubernetes_build_info", "Always 1; the labels are the release of Kubernetes whose kube-proxy is imitated.",
		func(e emit) {
			e(1, major, minor, kubernetes, "", "", "", runtime.Version(), runtime.Compiler, platform)
		}, "major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform")
}

// release takes v1.37.2 apart.
func release(version string) (major, minor string) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(rest, ".")
	return major, minor
}

// Feature is a feature gate. Stage is ALPHA, BETA, DEPRECATED or, when the feature is
// generally available, empty.
type Feature struct {
	Name, Stage string
	Enabled     bool
}

// Features shows the gates that this program knows, as they are set.
func (m *Metrics) Features(gates func() []Feature) {
	m.pullGauge("kubernetes_feature_enabled", "Feature gates by name and stage: 1 is enabled, 0 is disabled.",
		func(e emit) {
			for _, g := range gates() {
				e(truth(g.Enabled), g.Name, g.Stage)
			}
		}, "name", "stage")
}
