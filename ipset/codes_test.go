package ipset

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

// The same number means different things by operation and set type.
func TestKernelCodes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		op     Op
		code   syscall.Errno
		bitmap bool
		want   error
	}{
		{"add what is there", OpAdd, codeExist, false, ErrExist},
		{"delete what is not", OpDelete, codeExist, false, ErrNotExist},
		{"test what is not", OpTest, codeExist, true, ErrNotExist},
		{"hash is full", OpAdd, codeSpecific, false, ErrFull},
		{"port out of range", OpAdd, codeSpecific, true, ErrInvalid},
		{"second set of a swap", OpSwap, codeExistName2, false, ErrNotExist},
		{"second set of a rename", OpRename, codeExistName2, false, ErrExist},
		{"entry of wrong shape", OpAdd, codeProtocol, false, ErrInvalid},
		{"other protocol", OpList, codeProtocol, false, ErrUnsupported},
		{"no such type", OpProbe, codeFindType, false, ErrUnsupported},
		{"types differ", OpSwap, codeTypeMismatch, false, ErrUnsupported},
		{"referenced", OpRename, codeReferenced, false, ErrBusy},
		{"in use", OpDestroy, codeBusy, false, ErrBusy},
		{"being listed", OpSwap, syscall.EBUSY, false, ErrBusy},
		{"no set", OpAdd, syscall.ENOENT, false, ErrNotExist},
		{"no set to delete from", OpDelete, syscall.ENOENT, false, ErrNotExist},
		{"set there", OpCreate, syscall.EEXIST, false, ErrExist},
		{"no ipset", OpProbe, syscall.EINVAL, false, ErrUnsupported},
		{"not allowed", OpCreate, syscall.EPERM, false, syscall.EPERM},
		{"unknown", OpCreate, 4999, false, syscall.Errno(4999)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := explain(tt.op, tt.code, tt.bitmap)
			if !errors.Is(err, tt.want) || !errors.Is(err, tt.code) {
				t.Errorf("explain = %v, want %v", err, tt.want)
			}
			for _, other := range []error{ErrExist, ErrNotExist, ErrBusy, ErrUnsupported, ErrFull, ErrInvalid} {
				if !errors.Is(other, tt.want) && errors.Is(err, other) {
					t.Errorf("%v matches %v too", err, other)
				}
			}
		})
	}
}

func TestEveryCodeHasWords(t *testing.T) {
	for code := codeProtocol - 1; code <= codeRange; code++ {
		if text := explain(OpAdd, code, false).Error(); text == "" || strings.HasPrefix(text, "errno") {
			t.Errorf("code %d: %q", code, text)
		}
	}
}

func TestFitsIsLaxForDeletions(t *testing.T) {
	set := Set{Name: "a", Type: HashIPPort, Family: IPv4}
	icmp := IPPort(netip.MustParseAddr("10.0.0.1"), 1, 8<<8)
	if err := set.fits(OpAdd, icmp); !errors.Is(err, ErrInvalid) {
		t.Errorf("add: %v", err)
	}
	if err := set.fits(OpDelete, icmp); err != nil {
		t.Errorf("delete: %v", err)
	}
}
