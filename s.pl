use Time::HiRes 'time'; my $t=time; for(1..20000){ getppid() } printf "%.2f us\n", (time-$t)*1e6/20000;
