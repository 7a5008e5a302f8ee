/* A blocking TCP socket over loopback between two processes and nothing else: what any exchange is measured against.
 *
 *   bare records COUNT         [be32 8][be64 value] encoded into 32 KiB writes, decoded from 256 KiB reads, summed up
 *   bare bulk BYTES COUNT      COUNT writes of BYTES, 256 KiB reads, nothing decoded
 *   bare oneway RATE COUNT     RATE messages a second of 8 bytes that hold the time of sending; the receiver takes
 *                              the difference; the first tenth is dropped
 *
 * The clock runs from the sender's first record to the receiver's last; connecting is not in it. CPU is user and
 * system time of both processes over that span. Prints one line of JSON. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { WRITE_BYTES = 32 * 1024, READ_BYTES = 256 * 1024, RECORD_BYTES = 12 };

/* What the two processes tell the one that started them. */
struct shared {
    double start, end, sender_cpu, receiver_cpu;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *at = calloc(1, bytes);
    if (!at) die("calloc");
    return at;
}

static void write_all(int fd, const void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);
        if (n <= 0) die("write");
        done += n;
    }
}

static size_t read_some(int fd, void *into, size_t bytes) {
    ssize_t n = read(fd, into, bytes);
    if (n <= 0) die("read");
    return n;
}

static void send_records(int fd, uint64_t count) {
    uint8_t *buffer = allocate(WRITE_BYTES + RECORD_BYTES);
    size_t filled = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t length = htobe32(8);
        uint64_t value = htobe64(i);
        memcpy(buffer + filled, &length, 4);
        memcpy(buffer + filled + 4, &value, 8);
        filled += RECORD_BYTES;
        if (filled >= WRITE_BYTES) {
            write_all(fd, buffer, WRITE_BYTES);
            memmove(buffer, buffer + WRITE_BYTES, filled - WRITE_BYTES);
            filled -= WRITE_BYTES;
        }
    }
    write_all(fd, buffer, filled);
}

static void receive_records(int fd, uint64_t count) {
    uint8_t *buffer = allocate(READ_BYTES + RECORD_BYTES);
    size_t have = 0;
    uint64_t received = 0, sum = 0;
    while (received < count) {
        have += read_some(fd, buffer + have, READ_BYTES);
        size_t at = 0;
        while (at + RECORD_BYTES <= have) {
            uint32_t length;
            uint64_t value;
            memcpy(&length, buffer + at, 4);
            memcpy(&value, buffer + at + 4, 8);
            sum += be64toh(value);
            at += 4 + be32toh(length);
            received++;
        }
        memmove(buffer, buffer + at, have - at);
        have -= at;
    }
    if (sum != count * (count - 1) / 2) {
        fprintf(stderr, "the records do not add up\n");
        exit(1);
    }
}

static void send_bulk(int fd, size_t bytes, uint64_t count) {
    char *payload = allocate(bytes);
    memset(payload, 7, bytes);
    for (uint64_t i = 0; i < count; i++) write_all(fd, payload, bytes);
}

static void receive_bulk(int fd, uint64_t total) {
    char *buffer = allocate(READ_BYTES);
    for (uint64_t got = 0; got < total;) got += read_some(fd, buffer, READ_BYTES);
}

static void send_stamps(int fd, double rate, uint64_t count) {
    double start = now();
    for (uint64_t i = 0; i < count; i++) {
        double due = start + i / rate;
        struct timespec t = {(time_t)due, (long)((due - (time_t)due) * 1e9)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        double stamp = now();
        write_all(fd, &stamp, sizeof stamp);
    }
}

static void receive_stamps(int fd, double *latencies, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        double stamp;
        size_t have = 0;
        while (have < sizeof stamp) have += read_some(fd, (char *)&stamp + have, sizeof stamp - have);
        latencies[i] = now() - stamp;
    }
}

static int by_size(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

int main(int argc, char **argv) {
    int is_records = argc == 3 && !strcmp(argv[1], "records");
    int is_bulk = argc == 4 && !strcmp(argv[1], "bulk"), is_oneway = argc == 4 && !strcmp(argv[1], "oneway");
    if (!is_records && !is_bulk && !is_oneway) return 2;
    uint64_t count = strtoull(argv[argc - 1], 0, 0);

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&address, length) || listen(listener, 1)) die("listen");
    getsockname(listener, (void *)&address, &length);
    struct shared *shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double *latencies = mmap(0, (count + 1) * 8, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (!fork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (void *)&address, sizeof address)) die("connect");
        no_delay(fd);
        double before = cpu();
        shared->start = now();
        if (is_records) send_records(fd, count);
        else if (is_bulk) send_bulk(fd, strtoull(argv[2], 0, 0), count);
        else send_stamps(fd, atof(argv[2]), count);
        shared->sender_cpu = cpu() - before;
        _exit(0);
    }
    if (!fork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = accept(listener, 0, 0);
        if (fd < 0) die("accept");
        double before = cpu();
        if (is_records) receive_records(fd, count);
        else if (is_bulk) receive_bulk(fd, strtoull(argv[2], 0, 0) * count);
        else receive_stamps(fd, latencies, count);
        shared->end = now();
        shared->receiver_cpu = cpu() - before;
        _exit(0);
    }
    int status, failed = 0;
    while (wait(&status) > 0) failed |= status;
    if (failed) return 1;

    double seconds = shared->end - shared->start;
    printf("{\"records_per_s\": %.1f, \"cpu_ns_per_record\": %.3f", count / seconds,
           (shared->sender_cpu + shared->receiver_cpu) / count * 1e9);
    if (is_oneway) {
        double *kept = latencies + count / 10;
        uint64_t n = count - count / 10;
        qsort(kept, n, sizeof *kept, by_size);
        printf(", \"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f", kept[n / 2] * 1e6, kept[n * 99 / 100] * 1e6,
               kept[n * 999 / 1000] * 1e6);
    }
    printf("}\n");
    return 0;
}
