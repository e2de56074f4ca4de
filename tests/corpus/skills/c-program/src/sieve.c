/* Counts primes by the sieve of Eratosthenes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments) {
  long most = count > 1 ? atol(arguments[1]) : 100, primes = 0;
  char *crossed = calloc(most + 1, 1);
  if (!crossed) return 1;
  for (long number = 2; number <= most; number++) {
    if (crossed[number]) continue;
    primes++;
    if (number <= (long)sqrt((double)most))
      for (long multiple = number * number; multiple <= most; multiple += number) crossed[multiple] = 1;
  }
  printf("%ld primes\n", primes);
  free(crossed);
  return 0;
}
