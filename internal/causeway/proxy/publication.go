package proxy

import "github.com/crannog/crannog/internal/causeway"

func (x *exchange) publication(d causeway.Decision) causeway.Decision { return d }
