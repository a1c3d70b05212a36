package rules

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// fixMarkMatch: hexadecimal without leading zeros; a full mask is not shown.
func fixMarkMatch(_ Family, e *extension) {
	for i := range e.options {
		o := &e.options[i]
		if !o.has("--mark") {
			continue
		}
		value, mask, ok := valueMask(o.args[0].val)
		switch {
		case ok && mask == math.MaxUint32:
			o.set(fmt.Sprintf("%#x", value))
		case ok:
			o.set(fmt.Sprintf("%#x/%#x", value, mask))
		}
	}
}

// fixMarkTarget: every way to set a mark is saved as --set-xmark value/mask,
// where the kernel computes (mark &^ mask) ^ value.
func fixMarkTarget(_ Family, e *extension) {
	for i := range e.options {
		o := &e.options[i]
		if len(o.args) != 1 || !o.args[0].bare() {
			continue
		}
		value, mask, ok := valueMask(o.args[0].val)
		if !ok {
			continue
		}
		switch o.name {
		case "--set-xmark":
		case "--set-mark":
			mask |= value
		case "--or-mark":
			mask = value
		case "--xor-mark":
			mask = 0
		case "--and-mark":
			value, mask = 0, ^value
		default:
			continue
		}
		o.name = "--set-xmark"
		o.set(fmt.Sprintf("0x%x/0x%x", value, mask))
	}
}

// valueMask reads "value[/mask]"; without a mask all bits count.
func valueMask(s string) (value, mask uint32, ok bool) {
	v, m, hasMask := strings.Cut(s, "/")
	value64, err := strconv.ParseUint(v, 0, 32)
	if err != nil {
		return 0, 0, false
	}
	mask64 := uint64(math.MaxUint32)
	if hasMask {
		if mask64, err = strconv.ParseUint(m, 0, 32); err != nil {
			return 0, 0, false
		}
	}
	return uint32(value64), uint32(mask64), true
}
