// Package loyalty says how many points an order earns, and whose they are: one point per
// whole unit of its currency that is paid and not refunded. Both are functions of the set of
// payments and refunds, so it does not matter in which order they are seen. All of it is
// pure, and safe for concurrent use as long as nobody changes an account meanwhile.
package loyalty
