// The same as notes.c, as a class.
//
//   c++ -g -std=c++17 -Icrates/crashcheck/include -o notes examples/crashcheck/notes.cpp
//   crashcheck run --pm 4K --recover './notes show {pm}' -- ./notes run {pm}
#include <crashcheck.h>
#include <emmintrin.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <string_view>

class Notes {
public:
    void add(std::string_view text) {
        Note &note = notes_[count_];
        for (size_t i = 0; i < std::min(text.size(), sizeof note.text - 1); i++) note.text[i] = text[i];
#ifndef BUG
        persist(&note);
#endif
        count_++;
        persist(&count_);
    }

    void show() const {
        for (long i = 0; i < count_; i++) std::cout << notes_[i].text << '\n';
    }

private:
    struct Note { char text[64]; };

    static void persist(const void *line) {
        _mm_clflush(line);
        _mm_sfence();
    }

    alignas(64) long count_;
    alignas(64) std::array<Note, 63> notes_;
};

int main(int argc, char **argv) {
    int file = argc == 3 ? open(argv[2], O_RDWR) : -1;
    void *at = MAP_FAILED;
    if (file >= 0) at = mmap(nullptr, sizeof(Notes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) {
        std::cerr << "usage: notes run|show FILE\n";
        return 2;
    }
    auto &notes = *static_cast<Notes *>(at);
    if (argv[1] == std::string_view("show")) {
        notes.show();
        return 0;
    }
    crashcheck_checkpoint(0);
    long number = 1;
    for (auto text : {"milk", "bread", "eggs"}) {
        notes.add(text);
        crashcheck_checkpoint(number++);
    }
    return 0;
}
