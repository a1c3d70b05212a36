package rules

import (
	"math"
	"strconv"
	"strings"
)

// brief says a canonical rule in fewer bytes for the tools, which print it in canonical
// form again: a host address needs no prefix length, and a probability no more digits
// than tell its 31 bits. With tens of thousands of endpoints those are a tenth of all
// bytes.
func brief(rule string) string {
	if rest, ok := strings.CutPrefix(rule, probable); ok {
		digits, tail, _ := strings.Cut(rest, " ")
		return probable + fewDigits(digits) + " " + tail
	}
	return briefHead(rule)
}

const probable = "-m statistic --mode random --probability "

// fewDigits is the shortest decimal that the kernel holds as the same number.
func fewDigits(digits string) string {
	p, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return digits
	}
	held := math.Round(p * (1 << 31))
	for n := 1; n < 11; n++ {
		short := strconv.FormatFloat(p, 'f', n, 64)
		if q, err := strconv.ParseFloat(short, 64); err == nil && math.Round(q*(1<<31)) == held {
			return short
		}
	}
	return digits
}

// briefHead shortens the addresses at the beginning of a rule; behind them there may be
// comments, which are left as they are.
func briefHead(rule string) string {
	head, rest := "", rule
	for {
		option, tail, ok := strings.Cut(rest, " ")
		switch {
		case ok && option == "!":
			head, rest = head+"! ", tail
			continue
		case !ok || option != "-s" && option != "-d":
			return head + rest
		}
		address, tail, _ := strings.Cut(tail, " ")
		head, rest = head+option+" "+host(address)+" ", tail
	}
}

// host leaves the prefix length of a single address out.
func host(address string) string {
	if strings.Contains(address, ":") {
		return strings.TrimSuffix(address, "/128")
	}
	return strings.TrimSuffix(address, "/32")
}
