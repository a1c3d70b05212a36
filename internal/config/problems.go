package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// problems collects what is wrong with settings.
type problems struct {
	s    *Settings
	list []error
	// gates are those of file and command line, joined.
	gates map[string]bool
}

// add tells what is wrong with the setting that has the flag.
func (p *problems) add(flag, reason string, args ...any) {
	p.list = append(p.list, fmt.Errorf("%s: %w", p.s.name(flag), fmt.Errorf(reason, args...)))
}

// addAt tells what is wrong with one value of a list. In a file values have numbers.
func (p *problems) addAt(flag string, i int, reason string, args ...any) {
	name := p.s.name(flag)
	if !strings.HasPrefix(name, "-") {
		name = fmt.Sprintf("%s[%d]", name, i)
	}
	p.list = append(p.list, fmt.Errorf("%s: %w", name, fmt.Errorf(reason, args...)))
}

func (p *problems) err() error { return errors.Join(p.list...) }

func (p *problems) oneOf(flag, value string) {
	if allowed := Choices(flag); !slices.Contains(allowed, value) {
		p.add(flag, "%q is not one of %s", value, strings.Join(allowed, ", "))
	}
}

func (p *problems) bound(flag string, d time.Duration) {
	if d < time.Second {
		p.add(flag, "%s is too short, at least 1s", d)
	}
}

// seconds looks at a time that the kernel keeps in whole seconds. Less than one
// would be written as 0, which means something else.
func (p *problems) seconds(flag string, d time.Duration) time.Duration {
	switch {
	case d < 0:
		p.add(flag, "%s is less than 0", d)
	case d > 0 && d < time.Second:
		p.add(flag, "%s is less than 1s, the unit of the kernel; 0s keeps the kernel's value", d)
	}
	return d
}

func (p *problems) notNegative(flag string, n int32) int { return p.atLeast(0, flag, n) }

func (p *problems) atLeast(least int32, flag string, n int32) int {
	if n < least {
		p.add(flag, "%d is less than %d", n, least)
	}
	return int(n)
}
