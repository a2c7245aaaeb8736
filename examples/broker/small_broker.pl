#!/usr/bin/perl
# The whole contract in Perl: perl small_broker.pl PORT SERVICE_HOST:PORT COMMAND...
# It owns the command as its child. To make it yours, fill in memory_free, and keep $lease and $phase in a file.
use strict; use warnings; use IO::Socket::INET; use JSON::PP; use POSIX qw(WNOHANG strftime);
my ($port, $service, @command) = @ARGV;
my ($phase, $lease, $last, $number, $pid) = ('starting', undef, '', time, 0);
$SIG{PIPE} = 'IGNORE';
$SIG{TERM} = sub { kill KILL => $pid; exit };
sub start { $phase = 'starting'; $pid = fork; if (!$pid) { $SIG{TERM} = 'DEFAULT'; exec @command or die } }
sub memory_free { 1 }    # yours: nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits
sub answers { my $s = IO::Socket::INET->new(PeerAddr => $service, Timeout => 2) or return;
    print $s "GET /healthz HTTP/1.0\r\nHost: $service\r\n\r\n"; return (<$s> // '') =~ / 200 / }
sub look {               # what has become true since the last call
    if ($phase eq 'stopping' && !(waitpid($pid, WNOHANG) == 0) && memory_free()) { $phase = 'held' }
    if ($phase eq 'held' && $lease->{until} <= time && memory_free()) { $last = $lease->{id}; $lease = undef; start() }
    if ($phase eq 'starting' && answers()) { $last = $lease->{id} if $lease; $lease = undef; $phase = 'free' } }
sub granted { $lease->{until} = time + $_[0]{ttl_seconds};
    return 200, { lease_id => $lease->{id}, expires_at => strftime('%Y-%m-%dT%H:%M:%SZ', gmtime $lease->{until}) } }
sub acquire { my $ask = shift;
    my $current = $lease && $phase eq 'held';
    if (defined $ask->{lease_id}) { return $current && $ask->{lease_id} eq $lease->{id} ? granted($ask) : (404, {}) }
    if ($lease && $lease->{holder} ne $ask->{holder}) { return 409, { holder => $lease->{holder} } }
    if ($current) { return granted($ask) }
    if ($phase eq 'free') { $lease = { id => 'lease-' . ++$number, holder => $ask->{holder}, until => 9e9 };
        $phase = 'stopping'; kill TERM => $pid }
    return 202, { state => 'pending' } }
sub release { my $id = shift;
    if ($lease && $id eq $lease->{id}) { start() if $phase eq 'held'; return 202, { state => 'pending' } }
    return $phase eq 'free' && $id eq $last ? (200, {}) : (404, {}) }
sub status { return 200, { state => $lease ? 'held' : 'free', map { $_ => $lease ? $lease->{$_ eq 'lease_id' ? 'id' : $_} : undef } qw(holder lease_id) } }
start();
my $door = IO::Socket::INET->new(LocalAddr => "127.0.0.1:$port", Listen => 50, ReuseAddr => 1) or die "cannot listen: $!";
while (my $caller = $door->accept) {
    my ($path, $length, $body) = (' ', 0, '');
    while (defined(my $line = <$caller>)) { $path = $1 if $line =~ m{^\w+ (\S+) HTTP}; $length = $1 if $line =~ /^content-length: *(\d+)/i; last if $line =~ /^\r?\n$/ }
    read $caller, $body, $length if $length;
    my $ask = eval { decode_json($body || '{}') } // {}; look();
    my ($code, $value) = $path eq '/gpu/acquire' ? acquire($ask) : $path eq '/gpu/release' ? release($ask->{lease_id} // '') : $path eq '/gpu/status' ? status() : (404, {});
    my $data = encode_json($value); print $caller "HTTP/1.1 $code X\r\nContent-Type: application/json\r\nContent-Length: ${\length $data}\r\nConnection: close\r\n\r\n$data" }
