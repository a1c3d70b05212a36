package procfs

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Version is the part of a kernel release that behaviour is keyed on.
// Distributions put newer code under older numbers, so a rule by version must be
// harmless on a kernel that has newer code.
type Version struct{ Major, Minor int }

// ParseVersion reads releases such as 6.1.0-18-amd64, 4.18.0-553.el8_10.x86_64,
// 5.9-custom or 6.12-rc3+; ok is false if there is no leading number.
func ParseVersion(release string) (v Version, ok bool) {
	major, rest, _ := strings.Cut(strings.TrimSpace(release), ".")
	var err error
	if v.Major, err = strconv.Atoi(major); err != nil || v.Major < 0 {
		return Version{}, false
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	if v.Minor, err = strconv.Atoi(rest[:end]); err != nil {
		return Version{}, false
	}
	return v, true
}

// Before reports whether v is older than w.
func (v Version) Before(w Version) bool {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor)) < 0
}

// String returns major.minor.
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }
