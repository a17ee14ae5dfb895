#include "sched_fixture.h"
int main(void)
{
    ok(1, "x");
    return done();
}
