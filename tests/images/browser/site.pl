# Serves the directory in which it runs, on http://localhost:8000. The image has no other server.
use strict;
use warnings;
use IO::Socket::INET;

my %types = (html => 'text/html', js => 'text/javascript', bin => 'application/octet-stream');
$SIG{CHLD} = 'IGNORE';
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 8000, Listen => 64, ReuseAddr => 1) or die $!;
$| = 1;
print "ready\n";
while (my $c = $listener->accept) {
    next if fork;
    my ($path) = (<$c> // '') =~ m{^GET /([a-z]+\.([a-z]+)) } or exit;
    my $type = $types{$2};
    while (defined(my $line = <$c>)) { last if $line =~ /^\r?\n$/ }
    if (open my $file, '<:raw', $path) {
        local $/;
        my $data = <$file>;
        print $c "HTTP/1.1 200 OK\r\nContent-Type: $type\r\nContent-Length: " . length($data) . "\r\nConnection: close\r\n\r\n$data";
    } else {
        print $c "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    }
    exit;
}
